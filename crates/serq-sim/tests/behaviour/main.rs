//! What programs do: text in, exact numbers out.

mod pd;
mod pools;
mod random;
mod refusals;
mod scenarios;
mod support;
mod theory;
mod vllm;
