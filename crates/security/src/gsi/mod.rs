//! GSI security contexts: TLS records as opaque tokens, delegation, and wrapped messages (RFC 2228
//! with the GSI mechanism, GFD.20 §4).

mod context;
mod data_connection;

pub use context::{Delegation, GsiAcceptor, GsiContext, GsiError, GsiInitiator, GsiStep};
pub use data_connection::{DataHandshake, DataHandshakeMode};
