//! The GridFTP and FTP server.
//!
//! [`serve()`] takes a [`config::ServerConfig`] and runs until a [`Shutdown`] request ends it. Each
//! control connection is one tokio task that drives a [`proto::server::ServerSession`]. File requests
//! and password checks run on blocking threads; each transfer has threads of its own.

#![forbid(unsafe_code)]

pub mod config;
pub mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod key_holder;
pub mod limits;
pub mod pam;
pub mod sandbox;
pub mod transfer_log;
pub mod users;

mod carried;
mod check;
mod congestion;
mod listen;
mod login;
mod monitoring;
mod node;
mod proxy_header;
mod reload;
mod roots;
mod secure;
mod serve;
mod service_manager;
mod session;
mod session_files;
mod shutdown;
mod startup;
mod state;
mod stripes;
#[cfg(test)]
mod test_pipe;
mod transfer;
mod work;

pub use carried::{CarriedClient, CarriedServer};
pub use check::{SettingsWarning, check};
pub use config::SiteError;
pub use congestion::CongestionError;
pub use data::os::privilege::PrivilegeError;
pub use login::{CheckedIssuer, TokenSetupError, check_token_issuers};
pub use reload::ReloadRequests;
pub use secure::SecurityMaterialError;
pub use serve::{ServerAnnouncement, serve, serve_with_reloads};
pub use service_manager::{PassedListeners, PassedListenersError, ServiceManager};
pub use shutdown::{Shutdown, ShutdownHandle};
pub use startup::ServeError;
