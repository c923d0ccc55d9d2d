//! How bytes reach a connection: unchanged, or through a layer of security if one is negotiated.
//!
//! `DataTransport` serves the blocking threads of a transfer, [`ControlTransport`] the asynchronous
//! sessions. Neither performs its handshake on creation, so that the code that accepts connections
//! never waits for one: the thread or task that serves the connection does, or the acceptor continues
//! many handshakes as their bytes arrive (`crate::tls_handshake`). Sockets themselves are
//! for options, the kernel's state and waits; bytes pass through the transport, unless it permits
//! the kernel to move them (`DataTransport::kernel_socket`).

mod control;
mod data;
mod protection;

pub use control::{ControlTransport, tls_error};
pub(crate) use data::DataTransport;
#[cfg(test)]
pub(crate) use data::HandshakeGate;

#[cfg(test)]
mod tests;
