//! Readers of what clients, peers and operators write, against bytes nobody meant.

mod mutation;
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
mod oracle;
