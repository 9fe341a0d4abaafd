//! PCG32: the generator of `contracts/spec/pcg32.md`.

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Streams of one seed: weights.
pub const PURPOSE_INIT: u64 = 1;
/// Streams of one seed: dropout.
pub const PURPOSE_DROPOUT: u64 = 2;
/// Streams of one seed: order of data.
pub const PURPOSE_SHUFFLE: u64 = 3;
/// Streams of one seed: the tokens of a request.
pub const PURPOSE_SAMPLE: u64 = 4;
/// Streams of one seed: mutations.
pub const PURPOSE_MUTATION: u64 = 5;
/// The choice `i` of a request takes its seed under this number plus `i`.
pub const PURPOSE_CHOICE: u64 = 16;

/// A 64-bit linear congruential generator with 32 permuted output bits.
///
/// Two generators are equal when they give the same numbers from here on.
#[derive(Debug, Clone, PartialEq)]
pub struct Pcg32 {
    state: u64,
    inc: u64,
    spare_normal: Option<f64>,
}

impl Pcg32 {
    /// The sequence number of a generator that was given none.
    pub const DEFAULT_SEQ: u64 = 54;

    /// A generator at the start of sequence `seq`, whose top bit does not count.
    pub fn new(seed: u64, seq: u64) -> Self {
        let mut rng = Self { state: 0, inc: (seq << 1) | 1, spare_normal: None };
        rng.step();
        rng.state = rng.state.wrapping_add(seed);
        rng.step();
        rng
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.inc);
    }

    /// The next 32 bits. One step.
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.step();
        let xored = (((old >> 18) ^ old) >> 27) as u32;
        xored.rotate_right((old >> 59) as u32)
    }

    /// A multiple of 2^-53 in [0, 1). Two steps.
    pub fn uniform_f64(&mut self) -> f64 {
        let high = u64::from(self.next_u32() >> 5);
        let low = u64::from(self.next_u32() >> 6);
        ((high << 26) | low) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A number below `n`, each equally likely. At least one step; none when `n` is 0,
    /// which gives 0.
    pub fn below(&mut self, n: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        let threshold = n.wrapping_neg() % n;
        loop {
            let r = self.next_u32();
            if r >= threshold {
                return r % n;
            }
        }
    }

    /// Puts `items` in random order, from the end. At most 2^32 items take part.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(u32::try_from(i + 1).unwrap_or(u32::MAX));
            items.swap(i, j as usize);
        }
    }

    /// A normal number (mean 0, variance 1). Four steps every other call; the
    /// logarithm and the angle functions make it exact to 4 units in the last place.
    pub fn normal(&mut self) -> f64 {
        if let Some(z) = self.spare_normal.take() {
            return z;
        }
        let radius = (-2.0 * libm::log(1.0 - self.uniform_f64())).sqrt();
        let (sin, cos) = libm::sincos(2.0 * std::f64::consts::PI * self.uniform_f64());
        self.spare_normal = Some(radius * sin);
        radius * cos
    }

    /// Skips `n` uniforms: the state after `n` calls of [`Pcg32::uniform_f64`], in
    /// O(log n).
    pub fn advance_uniforms(&mut self, n: u64) {
        // x -> a x + c, composed with itself by squaring. The period is 2^64 steps, so
        // that the doubling may wrap.
        let mut steps = n.wrapping_mul(2);
        let (mut a, mut c) = (MULTIPLIER, self.inc);
        let (mut total_a, mut total_c) = (1_u64, 0_u64);
        while steps > 0 {
            if steps & 1 == 1 {
                total_a = total_a.wrapping_mul(a);
                total_c = total_c.wrapping_mul(a).wrapping_add(c);
            }
            c = c.wrapping_mul(a.wrapping_add(1));
            a = a.wrapping_mul(a);
            steps >>= 1;
        }
        self.state = self.state.wrapping_mul(total_a).wrapping_add(total_c);
    }

    /// `(state, increment)`, for comparison and for logs.
    pub fn state(&self) -> (u64, u64) {
        (self.state, self.inc)
    }
}

/// A bijection on 64-bit numbers whose outputs look unrelated.
pub fn mix64(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The seed that `purpose` derives from `seed`.
pub fn child_seed(seed: u64, purpose: u64) -> u64 {
    mix64(seed.wrapping_add(purpose.wrapping_mul(GOLDEN)))
}

/// The generator of one purpose of a seed.
pub fn stream(seed: u64, purpose: u64) -> Pcg32 {
    Pcg32::new(child_seed(seed, purpose), purpose)
}

/// The seed of choice `index` of a request: the request's own for the first.
pub fn choice_seed(seed: u64, index: u32) -> u64 {
    if index == 0 { seed } else { child_seed(seed, PURPOSE_CHOICE + u64::from(index)) }
}
