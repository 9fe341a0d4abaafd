//! What a run measures, in memory that does not grow with it.

pub(crate) mod average;
pub(crate) mod sample;

pub(crate) use average::{Mean, TimeAverage};
pub(crate) use sample::Samples;

#[cfg(test)]
mod tests;
