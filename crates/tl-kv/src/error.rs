//! The pool's error and the names an error has on the wire.

/// What a pool operation refused, with the number that the C interface of the format uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {message}")]
pub struct KvError {
    /// Stable number, see the associated constants.
    pub status: i32,
    /// Stable name of the number, for logs and metrics.
    pub name: &'static str,
    /// What was refused and why.
    pub message: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $konst:ident = $status:literal, $ctor:ident;)*) => {
        impl KvError {
            $($(#[$doc])* pub const $konst: i32 = $status;)*
            $(
                $(#[$doc])*
                pub fn $ctor(message: impl Into<String>) -> Self {
                    Self { status: $status, name: stringify!($konst), message: message.into() }
                }
            )*
        }
    };
}

kinds! {
    /// The caller broke the contract of the call.
    EINVAL = 1, invalid;
    /// The storage cannot be allocated.
    ENOMEM = 2, no_memory;
    /// A dtype or wire format this build does not have.
    EUNSUPPORTED = 4, unsupported;
    /// Fewer blocks are free or cached than asked for.
    EFULL = 5, full;
    /// An envelope of another shape than the pool's.
    ESHAPE = 6, shape;
    /// An envelope that is damaged or breaks a reader rule.
    EFORMAT = 7, format;
    /// A block is in use in a way that excludes the call.
    EBUSY = 8, busy;
    /// The bytes that arrived in the pool are not the bytes that were sent.
    EPROOF = 9, proof;
}

impl KvError {
    /// The wire code that a peer gets for this error.
    pub fn code(&self) -> Code {
        match self.status {
            Self::EFULL | Self::ENOMEM => Code::ResourceExhausted,
            Self::EFORMAT | Self::ESHAPE | Self::EPROOF => Code::DataLoss,
            _ => Code::Internal,
        }
    }
}

/// Outcome of a call between engines, with gRPC's meaning and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
}

impl Code {
    /// Stable name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Aborted => "aborted",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data_loss",
        }
    }

    /// The code of a gRPC status number. Numbers that a hand-off never answers are `Unknown`.
    pub fn from_grpc(number: i32) -> Self {
        match number {
            1 => Self::Cancelled,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            6 => Self::AlreadyExists,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            10 => Self::Aborted,
            13 => Self::Internal,
            14 => Self::Unavailable,
            15 => Self::DataLoss,
            _ => Self::Unknown,
        }
    }

    /// What a sender reports upwards for a failed transfer: whatever only says that the peer
    /// could not be heard becomes `Unavailable`, every verdict of the peer stays as it is.
    #[must_use]
    pub fn as_transfer_failure(self) -> Self {
        match self {
            Self::Unknown | Self::Cancelled | Self::DeadlineExceeded => Self::Unavailable,
            other => other,
        }
    }
}
