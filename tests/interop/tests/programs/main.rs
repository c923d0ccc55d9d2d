//! longhaul with programs of other projects, and with faults of peers and of the system. All tests are in
//! one program, so that tests that wait run in parallel.

mod chunked;
mod curl;
mod escapes;
mod exit_codes;
mod faults;
mod ftps_clients;
mod ftps_ftplib;
mod ftps_servers;
mod full_disk;
mod gfal;
mod globus_client;
mod globus_server;
mod gsi_clients;
mod gsi_servers;
mod hostile;
mod intruders;
mod kill;
mod lftp;
mod links;
mod local;
mod lost_listing;
mod moving_streams;
mod operation;
mod peers_alone;
mod peers_alone_gsi;
mod peers_alone_tls;
mod pipes;
mod plain_clients;
mod plain_servers;
mod power_cut;
mod preserve;
mod thin_volume;
mod third_party;
mod verbs;
mod web_servers;
