//! Why a token cannot be chosen.

/// Refusals of the sampler. None of them has drawn from the generator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A parameter is outside its range; the request is at fault.
    #[error("{field} is {value}, must be {range}")]
    Range {
        /// Name of the parameter, as in the API.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// The model gave a logit that is not a number.
    #[error("logit of token {token} is not a number")]
    NanLogits {
        /// The first such token.
        token: u32,
    },
    /// The model gave a logit of plus infinity.
    #[error("logit of token {token} is infinite")]
    InfiniteLogits {
        /// The first such token.
        token: u32,
    },
    /// Penalties or temperature took a logit beyond the numbers.
    #[error("logits overflow after penalties and temperature {temperature}")]
    Overflow {
        /// The temperature in force.
        temperature: f64,
    },
    /// No token is left: every logit is minus infinity, or there are none.
    #[error("all {vocab} tokens are masked")]
    FullyMasked {
        /// Number of logits.
        vocab: usize,
    },
}
