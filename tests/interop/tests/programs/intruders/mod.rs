//! Attacks on the real `longhaul serve` and `longhaul cp`. Each is refused, the log of the server names the
//! failed check with its value, and others are served during and after it.

mod addresses;
mod certificates;
mod clear_sessions;
mod floods;
mod hostile_ftp_server;
mod link_race;
mod messages;
mod servers_of_cp;
mod session;
mod target;
mod tokens;
