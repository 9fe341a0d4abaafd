//! The front door: worker registry, routing, prefill/decode orchestration, streaming.
//!
//! Three pure cores decide, and [`start_gateway`] puts sockets and clocks around them:
//! [`registry`] knows who is there and what they have been promised, [`route`] chooses, and
//! [`attempt`] leads one choice of one request from routing to its last token.
#![forbid(unsafe_code)]

pub mod attempt;
pub mod registry;
pub mod route;
mod server;

pub use server::{Addresses, Gateway, GatewayError, start_gateway};
