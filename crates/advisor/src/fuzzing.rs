//! Entrances to private parsers, for the fuzz targets alone.

pub use crate::path_test::{echo_again, message_in_ipv4};
