//! When sessions come: as the program says, or as they came where a reference is from.
//!
//! Near saturation five runs of 300 s say little about the mean, and two simulators that are both right differ by
//! more than either is off. Under the same arrivals they do not.

use std::borrow::Cow;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serq_lang::ir::{Arrival, Program, version_needed};

/// Who draws the arrivals of a table's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The program, under its seed.
    Own,
    /// Poisson arrivals, at the program's rate, from one ChaCha12 stream per seed: the first at 0, gaps by inversion
    /// of the top 53 bits of each number. This is how the simulator that `pd_batching`'s table is from draws them.
    Chacha,
}

impl Traffic {
    /// The program with its arrivals up to `until` seconds as given times, unless it draws them itself.
    pub(super) fn given(self, program: &Program, seed: u64, until: f64) -> Cow<'_, Program> {
        let (Traffic::Chacha, &Arrival::Poisson(rate)) = (self, &program.arrival) else {
            return Cow::Borrowed(program);
        };
        let mut program = program.clone();
        program.arrival = Arrival::Times(chacha(rate, seed, until));
        program.version = version_needed(&program);
        Cow::Owned(program)
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
fn chacha(rate: f64, seed: u64, until: f64) -> Vec<f64> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let next = |at: &f64| Some(at - libm::log(1.0 - uniform()) / rate);
    std::iter::successors(Some(0.0), next).take_while(|at| *at <= until).collect()
}

#[cfg(test)]
mod tests {
    use super::chacha;

    /// Numbers that the other simulator's own generator gave.
    #[test]
    fn arrivals_are_those_of_the_reference() {
        let check = |rate, seed, count: usize, first: &[f64]| {
            let times = chacha(rate, seed, 300.0);
            assert_eq!(times.len(), count);
            for (a, b) in times.iter().zip(first) {
                assert!((a - b).abs() <= 1e-12 * b, "{a} and {b}");
            }
        };
        check(70.0, 1, 20_786, &[0.0, 0.052_273_089_920_576_27, 0.069_061_329_736_479_44]);
        check(20.0, 5, 5_954, &[0.0, 0.020_937_130_071_477_89, 0.021_269_133_971_763_77]);
    }
}
