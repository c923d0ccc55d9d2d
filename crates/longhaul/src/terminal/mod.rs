//! The user at the terminal: passwords that are asked for there, and the key that interrupts.

mod interrupt;
mod passwords;

pub(crate) use interrupt::until_interrupted;
pub(crate) use passwords::{ask_before, ask_for_missing};
