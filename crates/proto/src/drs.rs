//! The DRS channel of the 2004 paper (§3.2, §4): its address, its greeting, its one message.
//!
//! ```text
//! C->S DPSV                                 (mirrors PASV and EPSV)
//! S->C 229 Entering DRS Passive Mode (|1|192.0.2.7|41000|5e0c...|)
//! C->S DPRT |1|192.0.2.7|41000|5e0c...|     (mirrors PORT and EPRT: to the other server)
//! S->C 200 DPRT Command Successful.
//!
//! connecting end   DRS 5e0c...              (once; anything else closes)
//! data receiver    SBUF 12.345678 262144
//! data sender      SBUF 12.345678 262144    (echoed exactly)
//! ```

use std::fmt;
use std::net::SocketAddr;

/// What only the two ends of one data channel know: 128 random bits, told on the control channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Of random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Nonce {
    /// It is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(..)")
    }
}

/// Where a DRS channel is to be connected to, and what to say there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrsAddress {
    /// Host and port; the host must be the data channel's.
    pub at: SocketAddr,
    /// To be said first.
    pub nonce: Nonce,
}
