//! How a copy is verified: the choice, and the sums of local files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::digest::sum_source;
use data::store::Source;
use proto::checksum::Algorithm;

use crate::storage::contract::Sums;
use crate::{Exit, Failure, Verify};

/// Files from this size on are summed by the server while they move, over a second session;
/// smaller ones afterwards on the same session, which costs one round trip and no login.
pub(crate) const CONCURRENT_FROM: u64 = 1 << 20;
/// The same for servers that are asked ahead: afterwards then costs no round trip, only the time that
/// the sum takes, which for less than this is hardly more than a login.
pub(crate) const CONCURRENT_FROM_AHEAD: u64 = 64 << 20;

/// Comparison at the end.
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

/// An end of a copy, as far as its checksums go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summed<'a> {
    /// Checksums that can be had.
    pub(crate) sums: &'a Sums,
    /// The copied bytes are the whole file there.
    pub(crate) whole: bool,
}

impl Summed<'_> {
    /// Whether this sum can be had of the copied bytes.
    pub(crate) fn has(&self, algorithm: Algorithm) -> bool {
        self.sums.parts.contains(&algorithm) || (self.whole && self.sums.whole.contains(&algorithm))
    }
}

/// The check for a copy between two ends, by a checksum that both have.
///
/// # Errors
/// `Protocol` when one end lacks the algorithm that the user named.
pub(crate) fn choose(wish: Verify, ends: &[Summed<'_>]) -> Result<Check, Failure> {
    let all_have = |algorithm| ends.iter().all(|end| end.has(algorithm));
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

/// The comparison of a finished copy with its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparison<'a> {
    pub(crate) check: Check,
    /// The copy or its source, for messages.
    pub(crate) shown: &'a str,
    /// Some of the bytes came in an attempt that the server did not stand by: only a checksum can call
    /// the copy whole.
    pub(crate) disputed: bool,
}

/// How a comparison ended that found no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Both ends have this checksum.
    Same,
    /// There is no checksum to compare; the warning says why. Sizes have to do.
    SizeOnly(String),
}

impl Comparison<'_> {
    /// Weighs the sums of both ends by `algorithm`, or why one of them is missing.
    ///
    /// # Errors
    /// A difference ([`Exit::Integrity`]); a missing sum where a sum was asked for by name (the same)
    /// or where nothing else proves the copy ([`Exit::Protocol`]); a lost connection as it is.
    pub(crate) fn of(
        self,
        algorithm: Algorithm,
        source: Result<String, Failure>,
        copy: Result<String, Failure>,
    ) -> Result<Compared, Failure> {
        let shown = self.shown;
        let missing = match (source, copy) {
            (Ok(source), Ok(copy)) => {
                compare(algorithm, &source, &copy, shown)?;
                return Ok(Compared::Same);
            }
            (Err(failure), _) | (_, Err(failure)) if failure.transient => return Err(failure),
            (Err(failure), _) | (_, Err(failure)) => failure.message,
        };
        if self.disputed {
            let message = format!(
                "{shown}: the server did not confirm the transfer, and no checksum can prove the \
                 copy: {missing}; copy it again"
            );
            return Err(Failure::new(Exit::Protocol, message));
        }
        if self.check.is_required() {
            let message = format!("{shown}: cannot be verified as asked: {missing}");
            return Err(Failure::new(Exit::Integrity, message));
        }
        Ok(Compared::SizeOnly(format!(
            "{shown}: verified by size only: {missing}"
        )))
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

    fn server(parts: &[Algorithm], whole: &[Algorithm]) -> Sums {
        Sums {
            parts: parts.to_vec(),
            whole: whole.to_vec(),
        }
    }

    fn chosen(wish: Verify, ends: &[&Sums], whole: bool) -> Result<Check, Failure> {
        let ends: Vec<_> = ends.iter().map(|sums| Summed { sums, whole }).collect();
        choose(wish, &ends)
    }

    fn sum(algorithm: Algorithm, required: bool) -> Check {
        Check::Sum {
            algorithm,
            required,
        }
    }

    fn compared(
        disputed: bool,
        required: bool,
        copy: Result<&str, Failure>,
    ) -> Result<Compared, Failure> {
        let algorithm = Algorithm::Crc32c;
        let comparison = Comparison {
            check: Check::Sum {
                algorithm,
                required,
            },
            shown: "f",
            disputed,
        };
        comparison.of(algorithm, Ok("AB".to_owned()), copy.map(str::to_owned))
    }

    #[test]
    fn sums_that_are_there_decide_whatever_else_is_so() {
        for (disputed, required) in [(false, false), (true, false), (false, true)] {
            let same = compared(disputed, required, Ok("ab"));
            assert_eq!(same, Ok(Compared::Same));
            let other = compared(disputed, required, Ok("ac"));
            assert_eq!(other.unwrap_err().exit, Exit::Integrity);
            let lost = Failure::transient(Exit::Unreachable, "lost");
            let missing = compared(disputed, required, Err(lost.clone()));
            assert_eq!(missing, Err(lost));
        }
    }

    #[test]
    fn a_missing_sum_is_made_up_for_by_the_size_only_where_nothing_speaks_against_it() {
        let missing = || Err(Failure::new(Exit::Protocol, "no CKSM"));
        let Ok(Compared::SizeOnly(warning)) = compared(false, false, missing()) else {
            panic!("sizes have to do");
        };
        assert_eq!(warning, "f: verified by size only: no CKSM");
        let disputed = compared(true, false, missing()).unwrap_err();
        assert_eq!(disputed.exit, Exit::Protocol);
        let asked_for = compared(false, true, missing()).unwrap_err();
        assert_eq!(asked_for.exit, Exit::Integrity);
    }

    #[test]
    fn cheapest_that_all_have() {
        let globus = server(
            &[Algorithm::Md5, Algorithm::Adler32, Algorithm::Sha256],
            &[],
        );
        let own = server(&Algorithm::CHEAPEST_FIRST, &[]);
        let auto = |ends: &[&Sums]| chosen(Verify::Auto, ends, true).unwrap();
        assert_eq!(auto(&[&own]), sum(Algorithm::Crc32c, false));
        assert_eq!(auto(&[&globus]), sum(Algorithm::Adler32, false));
        assert_eq!(auto(&[&own, &globus]), sum(Algorithm::Adler32, false));
        assert_eq!(auto(&[&own, &server(&[], &[])]), Check::Size);
    }

    #[test]
    fn plain_servers_sum_whole_files_only() {
        let plain = server(&[], &[Algorithm::Md5]);
        assert_eq!(
            chosen(Verify::Auto, &[&plain], true),
            Ok(sum(Algorithm::Md5, false))
        );
        assert_eq!(chosen(Verify::Auto, &[&plain], false), Ok(Check::Size));
    }

    #[test]
    fn named_algorithm_or_nothing() {
        let globus = server(&[Algorithm::Md5], &[]);
        assert_eq!(
            chosen(Verify::With(Algorithm::Md5), &[&globus], true),
            Ok(sum(Algorithm::Md5, true))
        );
        let refused = chosen(Verify::With(Algorithm::Blake3), &[&globus], true).unwrap_err();
        assert!(refused.message.contains("BLAKE3"));
        assert_eq!(chosen(Verify::None, &[&globus], true), Ok(Check::Bytes));
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
