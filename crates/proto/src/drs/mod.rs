//! The DRS channel (Engelhart, Gardner and Feng 2004, §3.2, §4): its address, its nonce line, and its
//! only message.
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
//! Lines end with CR LF; a bare LF is accepted too. Errors here never fail a transfer: after a violation
//! of the rules of [`DrsChannel`] only this channel is closed.

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
