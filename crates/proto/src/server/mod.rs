//! The server side of a control connection, as a state machine.
//!
//! The driver in the `server` crate passes lines and [`DriverEvent`]s in; the session returns
//! [`SessionAction`]s, which the driver carries out. The session decides which commands are allowed,
//! what each reply says, and what a transfer consists of. It opens no file or socket and reads no clock.
//!
//! Contract with the driver:
//! - The driver sends [`ServerSession::greeting`] first, then passes every line to
//!   [`ServerSession::on_line`].
//! - While [`ServerSession::expected_input`] is not [`ExpectedInput::Line`], the driver queues further
//!   lines in order. During a transfer or checksum ([`ExpectedInput::DriverEventOrUrgentLine`]) it passes
//!   urgent lines at once ([`ServerSession::is_urgent`]: ABOR, STAT, and SBUF with drs1). QUIT waits like
//!   any other line, so that commands pipelined before it are completed (RFC 959 §4.1.1).
//! - Actions are carried out in order. At most one of them is answered by an event
//!   ([`SessionAction::Secure`], [`SessionAction::Authenticate`], [`SessionAction::SetDataCredential`],
//!   [`SessionAction::File`], [`SessionAction::Listen`], [`SessionAction::ListenDrs`],
//!   [`SessionAction::Transfer`]), and it is the last.
//! - While [`ServerSession::expects_protected_lines`], the driver removes the protection of every line as
//!   it arrives ([`crate::command::unwrap_line`]), so that lines in its queue, urgent or not, are plain.
//! - The session ignores an event that nothing waits for, and all input after [`SessionAction::Close`].
//!
//! There is one module per subject of RFC 959 and GFD.20. `replies` decides the reply codes of failed files and
//! transfers. The golden dialogues are in `crates/proto/tests/transcripts`.

mod action;
mod announcement_memory;
mod config;
mod data_address;
mod data_protection;
mod features;
mod files;
mod get_put;
mod help;
mod listing;
mod logged_in;
mod login;
mod markers;
mod parameters;
mod replies;
mod right_sizing;
mod security_exchange;
mod session;
mod site;
#[cfg(test)]
mod tests;
mod transfer;

pub use action::*;
pub use announcement_memory::AnnouncementMemory;
pub use config::{CarriedRules, FindHome, SessionConfig};
pub use files::*;
pub use session::*;
