//! Runs a deployment: an event loop over its intermediate representation.
