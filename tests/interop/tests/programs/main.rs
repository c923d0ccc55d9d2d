//! longhaul against the real programs, and against faults that only they or the system can make. One
//! test program, so that tests which wait do so side by side.

mod chunked;
mod curl;
mod escapes;
mod exit_codes;
mod faults;
mod gfal;
mod globus_client;
mod globus_server;
mod hostile;
mod kill;
mod lftp;
mod links;
mod local;
mod moving_streams;
mod operation;
mod peers_alone;
mod pipes;
mod plain_clients;
mod plain_servers;
mod power_cut;
mod thin_volume;
mod third_party;
mod verbs;
mod web_servers;
