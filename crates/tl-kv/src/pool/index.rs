//! Prefix index: block hash to block.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Block hashes are hashes already; mixing them again would only cost.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(super) type Index = HashMap<u64, u32, BuildHasherDefault<Identity>>;

/// An index that holds `n` blocks without growing.
pub(super) fn with_room_for(n: u32) -> Index {
    Index::with_capacity_and_hasher(n as usize, BuildHasherDefault::default())
}
