//! What a run measures, in memory that does not grow with it.

pub(crate) mod average;
pub(crate) mod histogram;
mod rate;
mod request;
pub(crate) mod sample;
pub(crate) mod student;
pub(crate) mod trend;

pub(crate) use average::{Mean, TimeAverage};
pub(crate) use histogram::Histogram;
pub(crate) use rate::Rate;
pub(crate) use request::Requests;
pub(crate) use sample::Samples;
pub(crate) use trend::Trend;

#[cfg(test)]
mod tests;
