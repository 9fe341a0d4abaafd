//! The laws a program can draw from.
//!
//! Each formula is fixed, with its number of uniforms, so that a stream's later draws do not
//! depend on how a law happens to be implemented. Logarithms have the bits of libm's: the same on
//! every machine.

use serq_lang::ir::Dist;

use super::Rng;
use super::ln::ln;

/// Exponential by inversion, `-mean ln(1 - u)`.
#[inline]
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - rng.uniform())
}

/// Exponentials of mean 1 of one stream, drawn some at a time: a logarithm takes long, several of them that do not
/// wait for each other little longer.
#[derive(Debug, Default)]
pub(crate) struct Units {
    drawn: [f64; 32],
    /// Those that are left are the last of them.
    left: usize,
}

impl Units {
    #[inline]
    pub(crate) fn next(&mut self, rng: &mut Rng) -> f64 {
        if self.left == 0 {
            self.drawn = std::array::from_fn(|_| exponential(rng, 1.0));
            self.left = self.drawn.len();
        }
        self.left -= 1;
        self.drawn[self.drawn.len() - 1 - self.left]
    }
}

/// One draw; `a` and `b` are the parameters in order.
///
/// Errors: why the parameters make no law.
pub(crate) fn draw(rng: &mut Rng, dist: Dist, a: f64, b: f64) -> Result<f64, &'static str> {
    if a.is_nan() || b.is_nan() {
        return Err("a parameter is not a number");
    }
    match dist {
        Dist::Det => Ok(a),
        Dist::Exp => {
            mean_is_valid(a)?;
            Ok(exponential(rng, a))
        }
        Dist::Uniform => {
            if !(a.is_finite() && b.is_finite() && a <= b) {
                return Err("the bounds are not finite and in order");
            }
            Ok(a + (b - a) * rng.uniform())
        }
        Dist::Erlang => {
            mean_is_valid(b)?;
            if !(0.0..=1e6).contains(&a) {
                return Err("the number of phases is not between 0 and a million");
            }
            let phases = a.trunc().max(1.0);
            let mut sum = 0.0;
            for _ in 0..phases as u64 {
                sum += exponential(rng, b / phases);
            }
            Ok(sum)
        }
        Dist::H2 => {
            mean_is_valid(a)?;
            if !b.is_finite() {
                return Err("the squared coefficient of variation is not finite");
            }
            let cv2 = b.max(1.0);
            let p = f64::midpoint(1.0, ((cv2 - 1.0) / (cv2 + 1.0)).sqrt());
            let mean = if rng.uniform() < p { a / (2.0 * p) } else { a / (2.0 * (1.0 - p)) };
            Ok(exponential(rng, mean))
        }
        Dist::Bernoulli => {
            if !(-1e-9..=1.0 + 1e-9).contains(&a) {
                return Err("the probability is not between 0 and 1");
            }
            Ok(f64::from(rng.uniform() < a))
        }
    }
}

fn mean_is_valid(mean: f64) -> Result<(), &'static str> {
    if mean.is_finite() && mean >= 0.0 { Ok(()) } else { Err("the mean is negative or infinite") }
}
