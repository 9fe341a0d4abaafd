//! What one exploration is about: how large the world is, and what may go wrong in it.

use std::time::Instant;

/// How often each kind of fault may strike, in all, along one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// Of all kinds together.
    pub total: u8,
    /// The prefill engine dies and comes back with nothing.
    pub crash_p: u8,
    /// The decode engine dies and comes back with nothing.
    pub crash_d: u8,
    /// The gateway dies; its clients and calls are cut off.
    pub crash_g: u8,
    /// A message is lost.
    pub lose: u8,
    /// A message arrives twice.
    pub duplicate: u8,
    /// A block's bytes are damaged on the way.
    pub damage: u8,
    /// A message of a stream arrives before an earlier one of the same stream.
    pub overtake: u8,
    /// The decode engine's cache is emptied.
    pub evict: u8,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self::each(0, 0);

    /// Each kind at most `each` times, `total` in all.
    pub const fn each(each: u8, total: u8) -> Self {
        Self {
            total,
            crash_p: each,
            crash_d: each,
            crash_g: each,
            lose: each,
            duplicate: each,
            damage: each,
            overtake: each,
            evict: each,
        }
    }
}

/// A defect built in on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// None: the code as it is.
    None,
    /// The decode engine's clock runs, but no timer ends what is over.
    LeaseWithoutTimer,
    /// The decode engine answers when the last chunk arrives, before it has looked at it.
    AckBeforeLanding,
    /// The decode engine believes every checksum.
    NoChecksum,
    /// The decode engine forgets at once which handles ended.
    NoTombstone,
    /// Pushes do not say which life of the engine they come from.
    NoIncarnation,
    /// A call that ends does not end its connection's right to read the blocks.
    NoFence,
    /// The prefill engine gives its blocks back when it starts to send, not when it is answered.
    FreeBeforeAck,
    /// A refused push forgets its blocks instead of giving them back.
    LeakOnRefusal,
    /// A push that lands gives its blocks back as well.
    DoubleFree,
    /// A claim copies the handle's blocks instead of taking them.
    ClaimCopies,
    /// A claim takes whatever handle is ready.
    ClaimAny,
    /// A push whose handle ended is not told, and its place never given back.
    NoWake,
    /// The gateway never gives back what waits under a handle.
    NoRelease,
    /// The gateway ends with its client and does not wait for the prefill, and no tombstones.
    ReleaseBeforeAnswer,
    /// The gateway does not take back what it had gathered before it tries again.
    NoRestart,
    /// The gateway keeps what it had promised of an engine.
    NoLedger,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Requests, 1 or 2. Two share their first block and differ in the second.
    pub requests: u8,
    /// Blocks of the prefill engine's pool; a prompt needs two.
    pub p_blocks: u32,
    /// Blocks of the decode engine's pool.
    pub d_blocks: u32,
    /// Both engines have the prompt's first block cached at the start.
    pub warm: bool,
    /// Answers leave token by token; else whole.
    pub streamed: bool,
    /// Attempts of one request.
    pub max_attempts: u32,
    /// How often a request that found somebody full looks again.
    pub patience: u8,
    /// A client may leave at any moment.
    pub leave: bool,
    /// Waits may end although their answer is on its way: messages may take for ever.
    pub delay: bool,
    /// The decode engine's clock runs.
    pub time: bool,
    /// The decode engine's timer may run any time after it should; else it is on time.
    pub late: bool,
    /// After the prefill engine died, the decode engine may be told so.
    pub fence: bool,
    /// What may go wrong.
    pub faults: Faults,
    /// What is wrong with the code.
    pub defect: Defect,
    /// The moment at which the gateway's registry stands.
    pub epoch: Instant,
}

impl Setting {
    /// One request, pools of two blocks, everything may happen and `faults` faults strike.
    pub fn one(faults: u8) -> Self {
        Self {
            requests: 1,
            p_blocks: 2,
            d_blocks: 2,
            warm: false,
            streamed: true,
            max_attempts: 2,
            patience: 1,
            leave: true,
            delay: true,
            time: true,
            late: false,
            fence: false,
            faults: Faults::each(1, faults),
            defect: Defect::None,
            epoch: Instant::now(),
        }
    }

    /// Two requests that share a block; pools in which they get in each other's way.
    pub fn two(faults: u8) -> Self {
        Self { requests: 2, p_blocks: 3, d_blocks: 4, ..Self::one(faults) }
    }
}
