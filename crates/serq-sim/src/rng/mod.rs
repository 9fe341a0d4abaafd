//! Randomness: one generator per purpose, session and turn.
//!
//! A deployment changes the order of events. If sessions drew from one stream, changing a budget
//! would change the traffic, and a comparison of two deployments would compare two workloads as
//! well. So every (session, turn) has a stream for its request, every session one for the draws
//! of its statements, and arrivals, trace choice, eviction and each stage have their own. Two
//! deployments run with one seed see the same sessions at the same times asking the same things.
//!
//! The generator is xoshiro256++ 1.0 (Blackman and Vigna, public domain), 256 bits of state, whose
//! state is filled by SplitMix64 from a key. The key of a stream absorbs its coordinates one by
//! one: `x = seed; for w in [purpose, a, b]: x = mix((x + G) ^ w)`, with SplitMix64's constant
//! `G = 0x9e3779b97f4a7c15` and finalizer `mix`. A uniform number is the top 53 bits times 2^-53,
//! so it is in [0, 1). All of it is integer arithmetic: the same on every machine.

pub(crate) mod dist;
mod ln;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a stream is for; the first coordinate of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Gaps between sessions; one stream.
    Arrivals = 1,
    /// Which recorded session a session replays; by serial.
    Trace = 2,
    /// `init` (turn 0) and `turn` blocks; by serial and turn.
    Workload = 3,
    /// Draws in a session's statements; by serial.
    Statements = 4,
    /// Draws in eviction keys and spill clauses; one stream.
    Evict = 5,
    /// Draws in a stage's capacity, budget or cost; by stage.
    Stage = 6,
}

/// SplitMix64's finalizer.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64: the next state's finalized value.
fn split(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    mix(*state)
}

/// The streams of one purpose: what their keys begin with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family(u64);

impl Family {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        Self(absorb(seed, purpose as u64))
    }

    #[inline]
    pub(crate) fn stream(self, a: u64, b: u64) -> Rng {
        let mut key = absorb(absorb(self.0, a), b);
        Rng { s: std::array::from_fn(|_| split(&mut key)) }
    }
}

#[inline]
fn absorb(key: u64, word: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN) ^ word)
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// The stream at the given coordinates.
    pub(crate) fn stream(seed: u64, purpose: Purpose, a: u64, b: u64) -> Self {
        Family::new(seed, purpose).stream(a, b)
    }

    /// 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..n`, for `n > 0`, by the multiply-high method (bias below n / 2^64).
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests;
