//! A server: its URL, its name in the configuration, the login there, and the protection of its connections. A URL decides
//! which login and which protection it can have, and a name stands for all three.

mod any_bytes;
mod channel_places;
pub mod credentials;
pub mod location;
mod netrc;
mod password_source;
pub mod private_file;
pub mod protection;
mod protection_failures;
mod proxy_certificate;
pub mod remotes;
mod security_options;
pub(crate) mod server_identity;
mod tls_ports;
mod token;
mod url;
mod user_credential;
