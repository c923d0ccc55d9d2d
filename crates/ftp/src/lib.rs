//! The FTP and GridFTP client of one server.
//!
//! [`session`] is one logged-in control connection, with its listings, facts and changes of files. [`transfer`] is one
//! attempt to move one file, or several small ones, over one session or a few. [`location`] says where a server is,
//! [`protection`] how its connections are protected, [`network_proxy`] which proxy leads to it. Nothing here knows of other storages,
//! of retries, or of more than one copy.

#![forbid(unsafe_code)]

pub mod answers;
pub mod failure;
pub mod incomplete_listing;
pub mod network_proxy;
mod server;
pub mod session;
pub mod socket_stats;
pub mod ssh;
#[cfg(test)]
mod test_files;
pub mod transfer;

pub use failure::{Failure, FailureKind};
pub use network_proxy::{NetworkProxy, ProxyChoice, mask_proxy, proxies_of_environment};
pub use server::credentials::{Credential, MissingPassword, netrc_warning};
pub use server::private_file::{exposure_of_file, writers_of_file};
pub use server::protection::{
    ConnectionSecurity, DataProtectionChoice, DelegationChoice, SecurityOptions, TlsUse,
};
pub use server::remotes::{PasswordSource, RemoteLogin, RemoteServer, Remotes};
pub use server::server_identity::ServerIdentity;
pub use server::{credentials, location, private_file, protection, remotes};
pub use session::{clean_far_end, connect_to_server};
pub use ssh::{FarEndCleanup, FarEndOptions, FarProgram, InstallChoice, PortMemory};
pub use transfer::ModeChoice;
pub use units::Exit;
