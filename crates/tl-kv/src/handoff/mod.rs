//! The hand-off between engines as state machines: facts in, actions out.
