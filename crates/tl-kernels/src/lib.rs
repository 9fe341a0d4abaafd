//! Matrix products, paged attention, norms and rope, with one order of arithmetic
