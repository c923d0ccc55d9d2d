//! Arguments that are more than a number or a path.

use crate::address::AddressFamily;
use crate::ranges::RangeSet;

/// TYPE (RFC 959 §3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// Line ends are translated.
    Ascii,
    /// Bytes as they are.
    Image,
}

/// MODE (RFC 959 §3.4, GFD.20 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferMode {
    /// Stream: end of connection is end of file.
    Stream,
    /// Extended block.
    Extended,
}

/// DCAU argument (GFD.20 §3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataChannelAuth {
    /// No data channel authentication.
    None,
    /// Authenticate self.
    SelfAuth,
    /// Authenticate a given subject.
    Subject(String),
}

/// PROT argument (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionLevel {
    /// Clear
    Clear,
    /// Safe
    Safe,
    /// Confidential
    Confidential,
    /// Private
    Private,
}

/// REST argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartMarker {
    /// `REST n`: skip n bytes (RFC 3659 §5).
    Offset(u64),
    /// `REST a-b,c-d`: these ranges are there already (GFD.20 §3.7).
    Ranges(RangeSet),
}

/// EPSV argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsvArgument {
    /// None: the control connection's family.
    Any,
    /// `1` or `2`
    Family(AddressFamily),
    /// `ALL`
    All,
}

/// ERET/ESTO module forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtendedRetrieve {
    /// `ERET P offset length path`
    Partial {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// Which event TREV sets the period of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerEvent {
    /// Range markers.
    RestartMarker,
    /// Performance markers.
    PerformanceMarker,
}
