//! What the `serq` command is made of, beyond the language and the simulator.
#![forbid(unsafe_code)]

pub mod cores;
pub mod figures;
pub mod import;
pub mod oracle;
pub mod replay;
