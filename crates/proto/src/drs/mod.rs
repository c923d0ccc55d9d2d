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
//!
//! Lines end with CR LF; LF alone is taken too. What travels here never fails a transfer: whatever
//! breaks the rules of [`DrsChannel`] costs the peer this channel, and nothing else.

mod address;
mod channel;
mod line_buffer;
mod message;
mod nonce;

pub use address::DrsAddress;
pub use channel::{DrsChannel, DrsEvent, DrsRole, DrsViolation};
pub use line_buffer::MAX_LINE;
pub use message::DrsMessage;
pub use nonce::Nonce;
