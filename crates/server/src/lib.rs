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
mod lost_process;
pub mod pam;
pub mod sandbox;
pub mod transfer_log;
pub mod users;

mod check;
mod congestion;
mod control;
mod data_address;
mod listen;
mod login;
mod metrics;
mod monitoring;
mod passed_listeners;
mod proxy_header;
mod reload;
mod roots;
mod secure;
mod serve;
mod service_manager;
mod session;
mod shared;
mod shutdown;
mod site;
mod startup;
#[cfg(test)]
mod test_pipe;
mod transfer;
mod work;

pub use check::{SettingsWarning, check};
pub use congestion::CongestionError;
pub use data::os::privilege::PrivilegeError;
pub use login::{CheckedIssuer, TokenSetupError, check_token_issuers};
pub use passed_listeners::{PassedListeners, PassedListenersError};
pub use reload::ReloadRequests;
pub use secure::SecurityMaterialError;
pub use serve::{ServerAnnouncement, serve, serve_with_reloads};
pub use service_manager::ServiceManager;
pub use shutdown::{Shutdown, ShutdownHandle};
pub use site::SiteError;
pub use startup::ServeError;
