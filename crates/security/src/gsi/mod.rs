//! GSI security contexts: TLS records as opaque tokens, delegation, and wrapped messages (RFC 2228
//! with the GSI mechanism, GFD.20 §4).

mod acceptor;
mod context;
mod data_connection;
mod initiator;
mod record;
#[cfg(test)]
mod tests;

pub use acceptor::GsiAcceptor;
pub use context::{Delegation, GsiContext, GsiError, GsiStep};
pub use data_connection::{DataHandshake, DataHandshakeMode};
pub use initiator::GsiInitiator;
