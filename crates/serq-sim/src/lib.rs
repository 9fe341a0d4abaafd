//! Runs a deployment: an event loop over its intermediate representation.
#![forbid(unsafe_code)]

pub mod content;
