//! What programs do: text in, exact numbers out.

mod bookings;
mod engines;
mod examples;
mod notes;
mod pd;
mod pools;
mod random;
mod refusals;
mod reports;
mod requests;
mod scenarios;
mod six;
mod support;
mod tables;
mod theory;
mod vllm;
