//! The gateway against scripted engines: real sockets and the real wire, no engine code.

mod admin;
mod failures;
mod fleet;
mod leaving;
mod serving;
mod support;
