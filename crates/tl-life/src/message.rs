//! What is on its way between the parties.

use std::fmt;
use std::rc::Rc;

use tl_kv::handoff::ChunkHead;

/// One block of a push on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk {
    pub handle: u8,
    pub hash: u64,
    pub total: u32,
    pub payload: Vec<u8>,
    pub crc32c: u32,
    /// Life of the engine that sent it, 0 when it does not say.
    pub incarnation: u64,
}

impl Chunk {
    /// As the receiving core sees it.
    pub fn head(&self, index: u8) -> ChunkHead<'_> {
        ChunkHead {
            handle_id: name(self.handle),
            block_hash: self.hash,
            block_index: u32::from(index),
            n_blocks_total: self.total,
            kv_format: tl_kv::KV_FORMAT_V1,
            payload_len: self.payload.len(),
            crc32c: self.crc32c,
        }
    }
}

/// How a `Prefill` was answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// First token sampled, blocks delivered.
    Delivered,
    /// gRPC code; `of_decode` when it is the decode engine's.
    Refused { code: i32, of_decode: bool },
}

/// What a decode engine streams, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    Accepted,
    Token(u16),
    End,
    /// No such handle.
    NoHandle,
    /// No room.
    Full,
}

/// A message in flight. The order of the variants and fields is the order in a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Prefill { handle: u8, request: u8 },
    Cancel { handle: u8 },
    Prefilled { handle: u8, verdict: Verdict },
    Has { job: u8, hashes: Vec<u64> },
    HasAnswer { job: u8, present: Vec<bool> },
    Chunk { push: u8, index: u8, chunk: Rc<Chunk> },
    Close { push: u8 },
    PushAnswer { push: u8, answer: Result<(u32, u32), i32> },
    Release { handle: u8 },
    Resume { handle: u8, request: u8 },
    Whole { call: u8, request: u8 },
    Stream { call: u8, run: u8, seq: u8, item: Item },
}

impl Message {
    /// Whether the network may double it: a request, which something on the way may send again,
    /// or a chunk. Answers come to calls that have ended by then, and bytes of an answer's body
    /// are in the hands of TCP.
    pub fn may_double(&self) -> bool {
        match self {
            Self::Prefill { .. }
            | Self::Cancel { .. }
            | Self::Has { .. }
            | Self::Chunk { .. }
            | Self::Close { .. }
            | Self::Release { .. }
            | Self::Resume { .. }
            | Self::Whole { .. } => true,
            Self::Prefilled { .. }
            | Self::HasAnswer { .. }
            | Self::PushAnswer { .. }
            | Self::Stream { .. } => false,
        }
    }

    /// The stream it belongs to, if order matters: kind and id.
    pub fn stream(&self) -> Option<(u8, u8)> {
        match self {
            Self::Chunk { push, .. } | Self::Close { push } => Some((0, *push)),
            Self::Stream { run, .. } => Some((1, *run)),
            _ => None,
        }
    }
}

/// The name of a handle.
pub fn name(handle: u8) -> &'static str {
    const NAMES: [&str; 16] = [
        "h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "h10", "h11", "h12", "h13",
        "h14", "h15",
    ];
    NAMES[usize::from(handle) % NAMES.len()]
}

/// The number of a handle's name.
pub fn number(handle: &str) -> u8 {
    handle.get(1..).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The name of a code.
pub fn code_name(code: i32) -> String {
    format!("{:?}", tonic::Code::from_i32(code))
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefill { handle, request } => {
                write!(f, "gateway to P: prefill request {request} as {}", name(*handle))
            }
            Self::Cancel { handle } => write!(f, "gateway to P: cancel {}", name(*handle)),
            Self::Prefilled { handle, verdict: Verdict::Delivered } => {
                write!(f, "P to gateway: {} is prefilled and delivered", name(*handle))
            }
            Self::Prefilled { handle, verdict: Verdict::Refused { code, of_decode } } => {
                let whose = if *of_decode { " by D" } else { "" };
                write!(f, "P to gateway: {} failed{whose}: {}", name(*handle), code_name(*code))
            }
            Self::Has { job, .. } => write!(f, "P to D: do you have the blocks of job {job}?"),
            Self::HasAnswer { job, present } => {
                let has = if present.contains(&true) { "has the first" } else { "has none" };
                write!(f, "D to P: it {has} of job {job}")
            }
            Self::Chunk { push, index, chunk } => {
                let kind = if chunk.payload.is_empty() { ", by name only" } else { "" };
                let handle = name(chunk.handle);
                write!(f, "P to D: push {push} of {handle}, block {index}{kind}")
            }
            Self::Close { push } => write!(f, "P to D: push {push}, end"),
            Self::PushAnswer { push, answer: Ok(_) } => write!(f, "D to P: push {push} has landed"),
            Self::PushAnswer { push, answer: Err(code) } => {
                write!(f, "D to P: push {push} is refused: {}", code_name(*code))
            }
            Self::Release { handle } => write!(f, "to D: release {}", name(*handle)),
            Self::Resume { handle, request } => {
                write!(f, "gateway to D: resume request {request} from {}", name(*handle))
            }
            Self::Whole { call, request } => {
                write!(f, "gateway to D: serve request {request} whole, call {call}")
            }
            Self::Stream { call, item, .. } => {
                let what = match item {
                    Item::Accepted => "accepted".to_owned(),
                    Item::Token(token) => format!("token {token}"),
                    Item::End => "end".to_owned(),
                    Item::NoHandle => "no such handle".to_owned(),
                    Item::Full => "no room".to_owned(),
                };
                write!(f, "D to gateway: call {}: {what}", name(*call))
            }
        }
    }
}
