//! Credentials, dialogues and their falsification, which several targets share.

pub mod gsi;
pub mod pki;
mod tampering;

pub use tampering::Tampering;
