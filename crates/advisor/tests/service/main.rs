//! The service with scripted tests.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

mod answers;
mod endurance;
mod scripted;
