//! The server's session as a state machine.
//!
//! Lines and outcomes go in, [`Action`]s come out; the driver in the `server` crate carries the
//! actions out and reports the outcomes. The session decides what is allowed, what each reply says
//! and what a transfer consists of; it opens nothing and reads no clock.
//!
//! Contract with the driver:
//! - The driver sends [`Session::greeting`] first, then feeds every line to [`Session::on_line`].
//! - While [`Session::awaiting`] says that an outcome is pending, the driver holds further lines
//!   back (in order), except during a transfer ([`Awaiting::Transfer`]): there it feeds lines
//!   whose verb is ABOR, STAT or QUIT at once ([`Session::is_urgent`]), others wait.
//! - Actions are carried out in order. At most one of them has an outcome
//!   ([`Action::Authenticate`], [`Action::File`], [`Action::Listen`], [`Action::Transfer`]), and it
//!   is the last.

mod action;
mod session;

pub use action::*;
pub use session::*;
