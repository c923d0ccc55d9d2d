//! Types of command arguments that are more than a number or a path.

use crate::address::AddressFamily;
use crate::ranges::RangeSet;

/// TYPE (RFC 959 §3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// ASCII: line endings are translated.
    Ascii,
    /// Image: bytes are sent unchanged.
    Image,
}

/// MODE (RFC 959 §3.4, GFD.20 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferMode {
    /// Stream mode (S): the end of the connection is the end of the file.
    Stream,
    /// Extended block mode (E).
    Extended,
}

/// REST argument: the data that the receiver has already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartMarker {
    /// `REST n`: all bytes before offset n (RFC 3659 §5).
    Offset(u64),
    /// `REST a-b,c-d`: these ranges (GFD.20 §3.7).
    Ranges(RangeSet),
}

/// EPSV argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsvArgument {
    /// No argument: the family of the control connection.
    Any,
    /// `1` or `2` (RFC 2428 §2).
    Family(AddressFamily),
    /// `ALL`: only EPSV will be used from now on (RFC 2428 §4).
    All,
}

/// ERET argument: the module and its parameters (GFD.20 §3.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtendedRetrieve {
    /// `ERET P offset length path`
    Partial {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// `ERET BUNDLE count directory` (longhaul): the announced bundle.
    Bundle {
        /// Number of announced files.
        count: usize,
    },
}

/// ESTO argument: the module and its parameters (GFD.20 §3.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtendedStore {
    /// `ESTO A offset path`: adjusted store.
    Adjusted {
        /// File offset of wire offset 0.
        offset: u64,
    },
    /// `ESTO BUNDLE count directory` (longhaul): the announced bundle.
    Bundle {
        /// Number of announced files.
        count: usize,
    },
}

/// Event whose period TREV sets (GFD.20 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerEvent {
    /// Restart markers (111).
    RestartMarker,
    /// Performance markers (112).
    PerformanceMarker,
}
