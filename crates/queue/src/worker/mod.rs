//! The worker: takes jobs, runs each as a child, renews its leases, and writes results.
//!
//! It decides nothing about leases: each child's guard ([`crate::guard`]) ends it in time. So the worker may wait for the database as
//! long as that is away.

mod attempt;
mod credentials;
mod events;
mod run;
mod state;

pub use credentials::{CredentialSettings, Credentials, CredentialsError, load_credentials};
pub use run::{Worker, WorkerSettings};
pub use state::StateError;
