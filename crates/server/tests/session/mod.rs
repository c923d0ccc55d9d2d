//! Sessions over real sockets, by subject.

mod client;
mod data_port;
mod in_process_server;

mod abort;
mod addresses;
mod bundles;
mod checksums;
mod extended;
mod hostile;
mod large_offsets;
mod limits;
mod lines;
mod listings;
mod log_names;
mod login;
mod proxied;
mod renamed_uploads;
mod restart;
mod right_sizing;
mod secure;
mod shares;
mod shutdown;
mod site;
mod stream_mode;
mod tuning;
mod upload_owners;
