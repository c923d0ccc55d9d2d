//! The server's session as a state machine.
//!
//! Lines and outcomes go in, [`SessionAction`]s come out; the driver in the `server` crate carries the
//! actions out and reports the outcomes. The session decides what is allowed, what each reply says
//! and what a transfer consists of; it opens nothing and reads no clock.
//!
//! Contract with the driver:
//! - The driver sends [`ServerSession::greeting`] first, then feeds every line to [`ServerSession::on_line`].
//! - While [`ServerSession::awaiting`] says that an outcome is pending, the driver holds further lines
//!   back (in order), except during what ABOR stops ([`ExpectedInput::DriverEventOrUrgentLine`]): there it feeds what
//!   is urgent at once ([`ServerSession::is_urgent`]: ABOR, STAT, SBUF with drs1), others wait. QUIT waits
//!   like any other, so that what was pipelined before it is done (RFC 959 §4.1.1).
//! - Actions are carried out in order. At most one of them has an outcome
//!   ([`SessionAction::Secure`], [`SessionAction::Authenticate`], [`SessionAction::File`], [`SessionAction::Listen`], [`SessionAction::ListenDrs`],
//!   [`SessionAction::Transfer`]), and it is the last.
//! - An outcome that nothing waits for is ignored; after [`SessionAction::Close`] so is everything.
//!
//! One module per subject of RFC 959 and GFD.20; `replies` alone decides which code a failure
//! gets. The golden dialogues are in `crates/proto/tests/transcripts`.

mod action;
mod data_address;
mod dispatch;
mod features;
mod file_response;
mod file_task;
mod files;
mod help;
mod listing;
mod login;
mod markers;
mod navigation;
mod options;
mod parameters;
mod passive_reply;
mod replies;
mod right_sizing;
mod running_transfer;
mod security_exchange;
mod session;
mod session_state;
mod site;
mod store;
mod transfer;
mod transfer_event;

pub use action::*;
pub use session::*;
