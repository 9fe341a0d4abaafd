//! The parameters of a request and their ranges.

use super::SampleError;

/// How a token is chosen. The default leaves every filter and penalty off, at
/// temperature 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// At least 0; 0 takes the most likely token and draws nothing.
    pub temperature: f64,
    /// In (0, 1]; 1 is off.
    pub top_p: f64,
    /// Tokens kept, at least 0; 0 is off.
    pub top_k: i32,
    /// In [0, 1]; 0 is off.
    pub min_p: f64,
    /// Above 0; 1 is off. Over the ids of prompt and output.
    pub repetition_penalty: f64,
    /// 0 is off. Once for each id of the output.
    pub presence_penalty: f64,
    /// 0 is off. For each occurrence in the output.
    pub frequency_penalty: f64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }
}

impl SamplingParams {
    /// The most likely token each time.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Uniforms that each token takes from the generator: 0 when greedy, else 1.
    pub fn draws_per_token(&self) -> u32 {
        u32::from(self.temperature != 0.0)
    }

    /// Whether every parameter is in its range.
    ///
    /// # Errors
    /// [`SampleError::Range`] with the first field that is not.
    pub fn validate(&self) -> Result<(), SampleError> {
        let check = |ok: bool, field, value: f64, range| {
            if ok { Ok(()) } else { Err(SampleError::Range { field, value, range }) }
        };
        let Self {
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
        } = *self;
        let finite_from = |x: f64, low: f64| x >= low && x.is_finite();
        check(finite_from(temperature, 0.0), "temperature", temperature, "finite and at least 0")?;
        check(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "above 0 and at most 1")?;
        check(top_k >= 0, "top_k", f64::from(top_k), "at least 0")?;
        check((0.0..=1.0).contains(&min_p), "min_p", min_p, "from 0 to 1")?;
        check(
            repetition_penalty > 0.0 && repetition_penalty.is_finite(),
            "repetition_penalty",
            repetition_penalty,
            "finite and above 0",
        )?;
        check(presence_penalty.is_finite(), "presence_penalty", presence_penalty, "finite")?;
        check(frequency_penalty.is_finite(), "frequency_penalty", frequency_penalty, "finite")
    }
}
