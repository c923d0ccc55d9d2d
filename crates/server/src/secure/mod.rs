//! TLS and GSI of the server: its certificates, and the security that each session has agreed on.

mod data_channel;
mod material;
mod node_security;
mod session;

pub(crate) use data_channel::{DataProtectionError, of_order};
pub use material::SecurityMaterialError;
pub(crate) use material::{SecurityMaterial, tls_mechanism};
pub(crate) use node_security::NodeSecurity;
pub(crate) use session::{
    CarriedSecurity, GridSecurity, GsiExchange, SessionSecurity, TlsSecurity,
};

#[cfg(test)]
mod tests;
