//! Sessions with TLS and GSI, with clients that make every byte themselves.

mod client;
mod data;
mod server;
mod tls_stream;

mod certificates;
mod expiry;
mod explicit_tls;
mod grid_data;
mod grid_login;
mod handshakes;
mod implicit_tls;
mod passwords;
mod reload;
mod tokens;
