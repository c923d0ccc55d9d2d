//! How a copy is verified: the choice, and the sums of local files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::digest::sum_source;
use data::store::Source;
use proto::checksum::Algorithm;
use proto::feature::Features;

use crate::{Exit, Failure, Verify};

/// Files from this size on are summed by the server while they move, over a second session;
/// smaller ones afterwards on the same session, which costs one round trip and no login.
pub(crate) const CONCURRENT_FROM: u64 = 1 << 20;
/// The same for servers that are asked ahead: afterwards then costs no round trip, only the time that
/// the sum takes, which for less than this is hardly more than a login.
pub(crate) const CONCURRENT_FROM_AHEAD: u64 = 64 << 20;

/// What is compared at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The number of bytes, as asked.
    Bytes,
    /// The number of bytes, because the server cannot sum.
    Size,
    /// Checksums of both ends; `required`: the user named it.
    Sum {
        /// Which.
        algorithm: Algorithm,
        /// Asked for by name: falling back to the size is no option.
        required: bool,
    },
}

impl Check {
    /// The word in summaries.
    pub(crate) fn label(self) -> String {
        match self {
            Self::Bytes => "none".to_owned(),
            Self::Size => "size".to_owned(),
            Self::Sum { algorithm, .. } => algorithm.name().to_ascii_lowercase(),
        }
    }

    /// The word when the check fell back to the size: an end that does not tell its size leaves
    /// nothing to compare.
    pub(crate) fn size_label(self, told: bool) -> String {
        match self {
            Self::Size | Self::Sum { .. } if told => Self::Size.label(),
            _ => Self::Bytes.label(),
        }
    }

    /// Whether the user named the algorithm, so that nothing else will do.
    pub(crate) fn is_required(self) -> bool {
        matches!(self, Self::Sum { required: true, .. })
    }

    /// The algorithm, if there is one.
    pub(crate) fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Sum { algorithm, .. } => Some(algorithm),
            Self::Bytes | Self::Size => None,
        }
    }
}

/// The check for a copy between this machine (which knows every algorithm) and `servers`. A part
/// of a file needs CKSM with offset and length; the X commands of plain servers sum whole files.
pub(crate) fn choose(wish: Verify, servers: &[&Features], whole: bool) -> Result<Check, Failure> {
    let has = |features: &&Features, algorithm: Algorithm| {
        features.checksums.contains(&algorithm)
            || (whole && features.x_checksums.contains(&algorithm))
    };
    let all_have = |algorithm| servers.iter().all(|f| has(f, algorithm));
    match wish {
        Verify::None => Ok(Check::Bytes),
        Verify::With(algorithm) if all_have(algorithm) => Ok(Check::Sum {
            algorithm,
            required: true,
        }),
        Verify::With(algorithm) => Err(Failure::new(
            Exit::Protocol,
            format!(
                "the server cannot compute {}; use --verify auto to take what it has",
                algorithm.name()
            ),
        )),
        Verify::Auto => Ok(Algorithm::CHEAPEST_FIRST
            .into_iter()
            .find(|a| all_have(*a))
            .map_or(Check::Size, |algorithm| Check::Sum {
                algorithm,
                required: false,
            })),
    }
}

/// Compares two sums.
pub(crate) fn compare(
    algorithm: Algorithm,
    source: &str,
    destination: &str,
    what: &str,
) -> Result<(), Failure> {
    if source.eq_ignore_ascii_case(destination) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Integrity,
        format!(
            "{what}: {} of the source is {source}, of the copy {destination}; the copy keeps its \
             partial name",
            algorithm.name()
        ),
    ))
}

/// Sums a local file on a thread of its own; dropping the future stops it.
pub(crate) async fn sum_local(
    algorithm: Algorithm,
    source: Arc<dyn Source>,
    offset: u64,
    length: Option<u64>,
) -> Result<String, Failure> {
    let stop = StopOnDrop(Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop.0);
    let name = source.name();
    let sum = tokio::task::spawn_blocking(move || {
        let mut go_on = |_| !stopped.load(Ordering::Relaxed);
        sum_source(algorithm, source.as_ref(), offset, length, &mut go_on)
    });
    match sum.await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(e)) => Err(Failure::new(Exit::Local, format!("cannot sum {name}: {e}"))),
        Err(e) => Err(Failure::new(Exit::Local, format!("cannot sum {name}: {e}"))),
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(checksums: &[Algorithm], x: &[Algorithm]) -> Features {
        Features {
            checksums: checksums.to_vec(),
            x_checksums: x.to_vec(),
            ..Features::default()
        }
    }

    fn sum(algorithm: Algorithm, required: bool) -> Check {
        Check::Sum {
            algorithm,
            required,
        }
    }

    #[test]
    fn cheapest_that_all_have() {
        let globus = server(
            &[Algorithm::Md5, Algorithm::Adler32, Algorithm::Sha256],
            &[],
        );
        let own = server(&Algorithm::CHEAPEST_FIRST, &[]);
        let auto = |servers: &[&Features]| choose(Verify::Auto, servers, true).unwrap();
        assert_eq!(auto(&[&own]), sum(Algorithm::Crc32c, false));
        assert_eq!(auto(&[&globus]), sum(Algorithm::Adler32, false));
        assert_eq!(auto(&[&own, &globus]), sum(Algorithm::Adler32, false));
        assert_eq!(auto(&[&own, &server(&[], &[])]), Check::Size);
    }

    #[test]
    fn plain_servers_sum_whole_files_only() {
        let plain = server(&[], &[Algorithm::Md5]);
        assert_eq!(
            choose(Verify::Auto, &[&plain], true),
            Ok(sum(Algorithm::Md5, false))
        );
        assert_eq!(choose(Verify::Auto, &[&plain], false), Ok(Check::Size));
    }

    #[test]
    fn named_algorithm_or_nothing() {
        let globus = server(&[Algorithm::Md5], &[]);
        assert_eq!(
            choose(Verify::With(Algorithm::Md5), &[&globus], true),
            Ok(sum(Algorithm::Md5, true))
        );
        let refused = choose(Verify::With(Algorithm::Blake3), &[&globus], true).unwrap_err();
        assert!(refused.message.contains("BLAKE3"));
        assert_eq!(choose(Verify::None, &[&globus], true), Ok(Check::Bytes));
        assert_eq!(Check::Bytes.label(), "none");
        assert_eq!(Check::Bytes.size_label(true), "none");
        assert_eq!(Check::Size.size_label(true), "size");
        assert_eq!(sum(Algorithm::Md5, false).size_label(false), "none");
    }

    #[test]
    fn mismatch_is_an_integrity_failure() {
        assert_eq!(compare(Algorithm::Md5, "AB", "ab", "x"), Ok(()));
        let failure = compare(Algorithm::Md5, "ab", "cd", "x").unwrap_err();
        assert_eq!(failure.exit, Exit::Integrity);
        assert!(!failure.transient);
    }
}
