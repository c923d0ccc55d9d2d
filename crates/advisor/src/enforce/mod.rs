//! Advice for programs that nobody can change, as metrics of host routes (ip-route(8)). Only when asked for.
//!
//! For each client a host route (/32 or /128) is added beside the route that serves it: same gateway, device and
//! source, and the advised `initcwnd`, `initrwnd` and `congctl`. The routes have a protocol number of their own, so
//! that `ip route show proto 201` lists them. A state file records each one before it is made, so that
//! [`enforcer::Enforcer::undo`] removes all of them, and nothing else, after a crash, too. `rto_min` is never set:
//! a wrong one makes connections retransmit without need.

pub mod enforcer;
pub mod ip_command;
pub mod route_metrics;
pub mod serving_route;
pub mod state;
