//! How a copy is verified: the choice, and the sums of local files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::checksum::checksum_source;
use data::store::Source;
use proto::checksum::ChecksumAlgorithm;

use crate::storage::contract::AvailableChecksums;
use crate::{CopyFailure, Exit, VerifyMode};

/// Files from this size on are summed by the server while they move, over a second session;
/// smaller ones afterwards on the same session, which costs one round trip and no login.
pub(crate) const CONCURRENT_FROM: u64 = 1 << 20;
/// The same for servers that are asked ahead: afterwards then costs no round trip, only the time that
/// the sum takes, which for less than this is hardly more than a login.
pub(crate) const CONCURRENT_FROM_AHEAD: u64 = 64 << 20;

/// Comparison at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The number of bytes, as asked.
    Bytes,
    /// The number of bytes, because the server cannot sum.
    Size,
    /// Checksums of both ends; `required`: the user named it.
    Sum {
        /// Which.
        algorithm: ChecksumAlgorithm,
        /// Asked for by name: falling back to the size is no option.
        required: bool,
    },
}

impl Verification {
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
    pub(crate) fn algorithm(self) -> Option<ChecksumAlgorithm> {
        match self {
            Self::Sum { algorithm, .. } => Some(algorithm),
            Self::Bytes | Self::Size => None,
        }
    }
}

/// An end of a copy, as far as its checksums go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumAbility<'a> {
    /// Checksums that can be had.
    pub(crate) sums: &'a AvailableChecksums,
    /// The copied bytes are the whole file there.
    pub(crate) whole: bool,
}

impl ChecksumAbility<'_> {
    /// Whether this sum can be had of the copied bytes.
    pub(crate) fn has(&self, algorithm: ChecksumAlgorithm) -> bool {
        self.sums.parts.contains(&algorithm) || (self.whole && self.sums.whole.contains(&algorithm))
    }
}

/// The check for a copy between two ends, by a checksum that both have.
///
/// # Errors
/// `Protocol` when one end lacks the algorithm that the user named.
pub(crate) fn choose_verification(
    wish: VerifyMode,
    ends: &[ChecksumAbility<'_>],
) -> Result<Verification, CopyFailure> {
    let all_have = |algorithm| ends.iter().all(|end| end.has(algorithm));
    match wish {
        VerifyMode::None => Ok(Verification::Bytes),
        VerifyMode::With(algorithm) if all_have(algorithm) => Ok(Verification::Sum {
            algorithm,
            required: true,
        }),
        VerifyMode::With(algorithm) => Err(CopyFailure::new(
            Exit::Protocol,
            format!(
                "the server cannot compute {}; use --verify auto to take what it has",
                algorithm.name()
            ),
        )),
        VerifyMode::Auto => Ok(ChecksumAlgorithm::CHEAPEST_FIRST
            .into_iter()
            .find(|a| all_have(*a))
            .map_or(Verification::Size, |algorithm| Verification::Sum {
                algorithm,
                required: false,
            })),
    }
}

/// The comparison of a finished copy with its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumComparison<'a> {
    pub(crate) check: Verification,
    /// The copy or its source, for messages.
    pub(crate) shown: &'a str,
    /// Some of the bytes came in an attempt that the server did not stand by: only a checksum can call
    /// the copy whole.
    pub(crate) disputed: bool,
}

/// How a comparison ended that found no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ComparisonResult {
    /// Both ends have this checksum.
    Same,
    /// There is no checksum to compare; the warning says why. Sizes have to do.
    SizeOnly(String),
}

impl ChecksumComparison<'_> {
    /// Weighs the sums of both ends by `algorithm`, or why one of them is missing.
    ///
    /// # Errors
    /// A difference ([`Exit::Integrity`]); a missing sum where a sum was asked for by name (the same)
    /// or where nothing else proves the copy ([`Exit::Protocol`]); a lost connection as it is.
    pub(crate) fn of(
        self,
        algorithm: ChecksumAlgorithm,
        source: Result<String, CopyFailure>,
        copy: Result<String, CopyFailure>,
    ) -> Result<ComparisonResult, CopyFailure> {
        let shown = self.shown;
        let missing = match (source, copy) {
            (Ok(source), Ok(copy)) => {
                compare_checksums(algorithm, &source, &copy, shown)?;
                return Ok(ComparisonResult::Same);
            }
            (Err(failure), _) | (_, Err(failure)) if failure.transient => return Err(failure),
            (Err(failure), _) | (_, Err(failure)) => failure.message,
        };
        if self.disputed {
            let message = format!(
                "{shown}: the server did not confirm the transfer, and no checksum can prove the \
                 copy: {missing}; copy it again"
            );
            return Err(CopyFailure::new(Exit::Protocol, message));
        }
        if self.check.is_required() {
            let message = format!("{shown}: cannot be verified as asked: {missing}");
            return Err(CopyFailure::new(Exit::Integrity, message));
        }
        Ok(ComparisonResult::SizeOnly(format!(
            "{shown}: verified by size only: {missing}"
        )))
    }
}

/// Compares two sums.
pub(crate) fn compare_checksums(
    algorithm: ChecksumAlgorithm,
    source: &str,
    destination: &str,
    what: &str,
) -> Result<(), CopyFailure> {
    if source.eq_ignore_ascii_case(destination) {
        return Ok(());
    }
    Err(CopyFailure::new(
        Exit::Integrity,
        format!(
            "{what}: {} of the source is {source}, of the copy {destination}; the copy keeps its \
             partial name",
            algorithm.name()
        ),
    ))
}

/// Sums a local file on a thread of its own; dropping the future stops it.
pub(crate) async fn checksum_local(
    algorithm: ChecksumAlgorithm,
    source: Arc<dyn Source>,
    offset: u64,
    length: Option<u64>,
) -> Result<String, CopyFailure> {
    let stop = StopChecksumOnDrop(Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop.0);
    let name = source.name();
    let sum = tokio::task::spawn_blocking(move || {
        let mut go_on = |_| !stopped.load(Ordering::Relaxed);
        checksum_source(algorithm, source.as_ref(), offset, length, &mut go_on)
    });
    match sum.await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(e)) => Err(CopyFailure::new(
            Exit::Local,
            format!("cannot sum {name}: {e}"),
        )),
        Err(e) => Err(CopyFailure::new(
            Exit::Local,
            format!("cannot sum {name}: {e}"),
        )),
    }
}

struct StopChecksumOnDrop(Arc<AtomicBool>);

impl Drop for StopChecksumOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(parts: &[ChecksumAlgorithm], whole: &[ChecksumAlgorithm]) -> AvailableChecksums {
        AvailableChecksums {
            parts: parts.to_vec(),
            whole: whole.to_vec(),
        }
    }

    fn chosen(
        wish: VerifyMode,
        ends: &[&AvailableChecksums],
        whole: bool,
    ) -> Result<Verification, CopyFailure> {
        let ends: Vec<_> = ends
            .iter()
            .map(|sums| ChecksumAbility { sums, whole })
            .collect();
        choose_verification(wish, &ends)
    }

    fn sum(algorithm: ChecksumAlgorithm, required: bool) -> Verification {
        Verification::Sum {
            algorithm,
            required,
        }
    }

    fn compared(
        disputed: bool,
        required: bool,
        copy: Result<&str, CopyFailure>,
    ) -> Result<ComparisonResult, CopyFailure> {
        let algorithm = ChecksumAlgorithm::Crc32c;
        let comparison = ChecksumComparison {
            check: Verification::Sum {
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
            assert_eq!(same, Ok(ComparisonResult::Same));
            let other = compared(disputed, required, Ok("ac"));
            assert_eq!(other.unwrap_err().exit, Exit::Integrity);
            let lost = CopyFailure::transient(Exit::Unreachable, "lost");
            let missing = compared(disputed, required, Err(lost.clone()));
            assert_eq!(missing, Err(lost));
        }
    }

    #[test]
    fn a_missing_sum_is_made_up_for_by_the_size_only_where_nothing_speaks_against_it() {
        let missing = || Err(CopyFailure::new(Exit::Protocol, "no CKSM"));
        let Ok(ComparisonResult::SizeOnly(warning)) = compared(false, false, missing()) else {
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
            &[
                ChecksumAlgorithm::Md5,
                ChecksumAlgorithm::Adler32,
                ChecksumAlgorithm::Sha256,
            ],
            &[],
        );
        let own = server(&ChecksumAlgorithm::CHEAPEST_FIRST, &[]);
        let auto = |ends: &[&AvailableChecksums]| chosen(VerifyMode::Auto, ends, true).unwrap();
        assert_eq!(auto(&[&own]), sum(ChecksumAlgorithm::Crc32c, false));
        assert_eq!(auto(&[&globus]), sum(ChecksumAlgorithm::Adler32, false));
        assert_eq!(
            auto(&[&own, &globus]),
            sum(ChecksumAlgorithm::Adler32, false)
        );
        assert_eq!(auto(&[&own, &server(&[], &[])]), Verification::Size);
    }

    #[test]
    fn plain_servers_sum_whole_files_only() {
        let plain = server(&[], &[ChecksumAlgorithm::Md5]);
        assert_eq!(
            chosen(VerifyMode::Auto, &[&plain], true),
            Ok(sum(ChecksumAlgorithm::Md5, false))
        );
        assert_eq!(
            chosen(VerifyMode::Auto, &[&plain], false),
            Ok(Verification::Size)
        );
    }

    #[test]
    fn named_algorithm_or_nothing() {
        let globus = server(&[ChecksumAlgorithm::Md5], &[]);
        assert_eq!(
            chosen(VerifyMode::With(ChecksumAlgorithm::Md5), &[&globus], true),
            Ok(sum(ChecksumAlgorithm::Md5, true))
        );
        let refused = chosen(
            VerifyMode::With(ChecksumAlgorithm::Blake3),
            &[&globus],
            true,
        )
        .unwrap_err();
        assert!(refused.message.contains("BLAKE3"));
        assert_eq!(
            chosen(VerifyMode::None, &[&globus], true),
            Ok(Verification::Bytes)
        );
        assert_eq!(Verification::Bytes.label(), "none");
        assert_eq!(Verification::Bytes.size_label(true), "none");
        assert_eq!(Verification::Size.size_label(true), "size");
        assert_eq!(sum(ChecksumAlgorithm::Md5, false).size_label(false), "none");
    }

    #[test]
    fn mismatch_is_an_integrity_failure() {
        assert_eq!(
            compare_checksums(ChecksumAlgorithm::Md5, "AB", "ab", "x"),
            Ok(())
        );
        let failure = compare_checksums(ChecksumAlgorithm::Md5, "ab", "cd", "x").unwrap_err();
        assert_eq!(failure.exit, Exit::Integrity);
        assert!(!failure.transient);
    }
}
