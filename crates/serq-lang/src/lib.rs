//! From the text of a deployment to its intermediate representation.
#![forbid(unsafe_code)]

pub mod ir;
