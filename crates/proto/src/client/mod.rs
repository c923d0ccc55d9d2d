//! The client's side of the dialogue, as decisions: what a server is known to be set to, and which
//! commands bring it to what a transfer needs, in the order that existing servers expect.
//!
//! The driver in the `client` crate asks [`Dialogue::flights`] for the steps of a transfer, carries
//! them out in order, and reports back what was accepted and refused. Nothing is sent twice: a
//! setting lives as long as the control connection (TYPE, MODE, OPTS, SBUF), and so does the DRS
//! channel's address; a data address one transfer in MODE S and until the direction changes in
//! MODE E, REST exactly one transfer.
//!
//! Before the login, [`SecurityExchange`] says what belongs to a security exchange.

mod dialogue;
mod flight;
mod part;
mod right_sizing;
mod securing;
mod step;

pub use dialogue::{Dialogue, NO_CONGESTION};
pub use flight::{TelnetEscape, is_one_flight, takes_commands_ahead};
pub use part::{NoPartial, Retrieval, retrieval, usable_ranges};
pub use right_sizing::{DrsEnd, NO_RIGHT_SIZING};
pub use securing::{ExchangeError, SecurityExchange, SecurityMove};
pub use step::{Direction, Need, Refusal, Step};
