//! The hand-off under faults: whatever breaks, and wherever, both pools end as they
//! began and what is claimed is what was sent.

mod common;
mod leases;
mod network;
mod receiving;
mod sending;
