//! `longhaul serve --root s3://BUCKET/PREFIX`: the bucket that a server has in place of a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use copy::ServedBucket;
use server::config::{SandboxMode, ServerConfig};

/// The scheme with which the root of a bucket begins.
const SCHEME: &str = "s3://";

/// Longest wait for a connection with the bucket, and for its answers: clients wait as long for theirs.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether the root is a bucket.
pub(crate) fn is_named(config: &ServerConfig) -> bool {
    named(config).is_some()
}

fn named(config: &ServerConfig) -> Option<&str> {
    let root = config.root.to_str();
    root.filter(|root| root.starts_with(SCHEME))
}

/// Has a server serve the bucket that its root names, if it names one. Returns the directories that must be readable for a key
/// to be renewed. No request is sent.
///
/// # Errors
/// One line: the URL or the credentials cannot be used.
pub(crate) fn open(config: &mut ServerConfig) -> Result<Vec<PathBuf>, String> {
    let Some(url) = named(config) else {
        return Ok(Vec::new());
    };
    let bucket = ServedBucket::open(url, config.transfer.stall.min(MAX_TIMEOUT))
        .map_err(|error| error.to_string())?;
    if bucket.starts_programs() && config.sandbox != SandboxMode::Off {
        return Err(
            "the profile gets its key from a program (credential_process), which a confined server may not start: use another \
             kind of key, or --sandbox off"
                .to_owned(),
        );
    }
    let directories = bucket.directories_of_keys();
    config.served_store = Some(Arc::new(bucket));
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_is_no_url_is_a_directory() {
        for root in ["/srv/data", ".", "s3:", "s3"] {
            let mut config = ServerConfig {
                root: root.into(),
                ..ServerConfig::default()
            };
            assert_eq!(open(&mut config), Ok(Vec::new()));
            assert!(config.served_store.is_none());
        }
    }
}
