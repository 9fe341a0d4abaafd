//! Messages and stubs of the tl protocols, generated from contracts/proto
