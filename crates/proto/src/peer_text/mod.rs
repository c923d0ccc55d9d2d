//! Text that a peer has sent: escaped for people, and searched for names that the peer repeats.

pub mod echo;
pub mod printable;
