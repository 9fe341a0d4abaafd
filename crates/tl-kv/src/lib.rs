//! KV blocks: pool, prefix index, block hash, envelope, and the hand-off state machine
