//! What can happen.

/// One step. Numbers are places in the net, requests, or names of jobs, pushes and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message arrives.
    Deliver(u8),
    /// A message arrives before an earlier one of its stream.
    Overtake(u8),
    Lose(u8),
    Duplicate(u8),
    Damage(u8),
    Evict,
    CrashP,
    CrashD,
    CrashG,
    /// A client leaves.
    Leave(u8),
    /// The gateway routes a request.
    Route(u8),
    /// A request's wait for room ends.
    RouteEnds(u8),
    /// A request looks again at who was full.
    LookAgain(u8),
    /// The gateway stops waiting for a prefill; `broken`: nobody was going to answer.
    NoPrefill {
        request: u8,
        broken: bool,
    },
    /// The gateway stops waiting for a decode engine.
    NoDecode {
        request: u8,
        broken: bool,
    },
    /// An engine's heartbeat, 0 of P and 1 of D, tells the gateway of its life.
    Beat(u8),
    /// P computes a prompt and asks D.
    Compute(u8),
    /// A prompt waited too long for room.
    QueueEnds(u8),
    /// A connection takes a push's next block.
    SendChunk(u8),
    /// P stops waiting for D.
    NoTransfer {
        job: u8,
        broken: bool,
    },
    /// P notices that nobody waits for a prefill.
    CallerGone(u8),
    /// A run makes its tokens.
    Step(u8),
    /// D notices that a push has no sender any more.
    StreamGone(u8),
    /// D ends a push whose handle has ended.
    Woken(u8),
    /// D notices that nobody listens to a run.
    RunGone(u8),
    /// D's clock: half a minute.
    Tick,
    /// D's timer runs, late.
    Timer,
    /// D is told that the former life of P is over.
    Fence,
}

impl Event {
    /// Whether it is bound to happen if nothing else does: what the parties do, what arrives, what
    /// a clock brings. Faults and clients that leave are not.
    pub fn is_bound(self) -> bool {
        !matches!(
            self,
            Self::Overtake(_)
                | Self::Lose(_)
                | Self::Duplicate(_)
                | Self::Damage(_)
                | Self::Evict
                | Self::CrashP
                | Self::CrashD
                | Self::CrashG
                | Self::Leave(_)
        )
    }

    pub(crate) fn describe(self, message: impl Fn(u8) -> String) -> String {
        let stops = |who: &str, what: String, broken: bool| {
            let how = if broken { "learns that nobody answers" } else { "is tired of waiting" };
            format!("{who} {how}: {what}")
        };
        match self {
            Self::Deliver(i) => message(i),
            Self::Overtake(i) => format!("! overtakes: {}", message(i)),
            Self::Lose(i) => format!("! is lost: {}", message(i)),
            Self::Duplicate(i) => format!("! is doubled: {}", message(i)),
            Self::Damage(i) => format!("! is damaged: {}", message(i)),
            Self::Evict => "! D's cache is emptied".to_owned(),
            Self::CrashP => "! P dies and starts again".to_owned(),
            Self::CrashD => "! D dies and starts again".to_owned(),
            Self::CrashG => "! the gateway dies and starts again".to_owned(),
            Self::Leave(request) => format!("client {request} leaves"),
            Self::Route(request) => format!("gateway routes request {request}"),
            Self::RouteEnds(request) => format!("gateway: request {request} finds no room in time"),
            Self::LookAgain(request) => {
                format!("gateway: request {request} asks the full ones again")
            }
            Self::NoPrefill { request, broken } => {
                stops("gateway", format!("prefill of request {request}"), broken)
            }
            Self::NoDecode { request, broken } => {
                stops("gateway", format!("decoding of request {request}"), broken)
            }
            Self::Beat(0) => "P beats: a new life".to_owned(),
            Self::Beat(_) => "D beats: a new life".to_owned(),
            Self::Compute(job) => format!("P: job {job} has room"),
            Self::QueueEnds(job) => format!("P: job {job} finds no room in time"),
            Self::SendChunk(push) => format!("P's connection takes the next block of push {push}"),
            Self::NoTransfer { job, broken } => {
                stops("P", format!("transfer of job {job}"), broken)
            }
            Self::CallerGone(job) => format!("P notices that nobody waits for job {job}"),
            Self::Step(run) => format!("D decodes, run {run}"),
            Self::StreamGone(push) => format!("D notices that push {push} has no sender"),
            Self::Woken(push) => format!("D ends push {push}: its handle has ended"),
            Self::RunGone(run) => format!("D notices that nobody listens to run {run}"),
            Self::Tick => "half a minute passes on D".to_owned(),
            Self::Timer => "D's timer runs".to_owned(),
            Self::Fence => "D is told that P's former life is over".to_owned(),
        }
    }
}
