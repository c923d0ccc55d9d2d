//! Runs a transcript against a session and writes its actual output.

mod describe;
mod driver_event;
mod play;
mod script;
mod tree;

pub(crate) use play::play;
