//! The `serq` command.

fn main() {}
