//! A queue of copies for a fleet of machines, kept in a PostgreSQL database.
//!
//! A job ([`copy::QueuedCopy`]) is one command `longhaul cp` or `longhaul sync`. A worker ([`worker`]) takes it from the database
//! ([`store::TransferQueue`]) under a lease, runs the program as a child, and writes the result back: no byte of a file passes
//! through the worker or the database. [`decisions`] has what needs no I/O: which job may start, what a result is worth, and how
//! long a lease holds. [`guard`] is the process between a worker and its child, which ends the child when the lease ends or the
//! worker dies. [`http`] shows the state of the queue.

#![forbid(unsafe_code)]

pub mod copy;
pub mod decisions;
pub mod guard;
pub mod http;
mod place;
pub mod store;
pub mod worker;

pub use place::PlaceRefused;
