//! How bytes reach a connection: as they are today, through a layer of security where one is agreed upon.
//!
//! `DataTransport` is for the blocking threads of a transfer, [`ControlTransport`] for the asynchronous
//! sessions. Both begin without a handshake, so that whoever accepts connections never waits for one: the
//! handshake belongs to the thread or task that serves the connection. Sockets themselves are for options,
//! for the kernel's view and for waits; bytes pass through the transport, unless it says that the kernel
//! may move them (`DataTransport::kernel`).

mod control;
mod data;

pub use control::ControlTransport;
pub(crate) use data::DataTransport;
#[cfg(test)]
pub(crate) use data::HandshakeGate;

#[cfg(test)]
mod tests;
