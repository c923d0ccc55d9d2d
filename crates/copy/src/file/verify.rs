//! Verification of a copy: the choice of the comparison, and checksums of local files.

use proto::checksum::ChecksumAlgorithm;

use crate::options::VerifyMode;
use crate::storage::capabilities::AvailableChecksums;
use ftp::failure::Sentence;
use ftp::{Failure, FailureKind};

/// [`CONCURRENT_FROM`](ftp::session::checksum::CONCURRENT_FROM) for servers with pipelining. A request afterwards costs them no round trip, only the
/// time of the computation, which below this size is about that of a login.
pub(crate) const CONCURRENT_FROM_AHEAD: u64 = 64 << 20;

/// The comparison to make when all bytes have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The number of bytes, as requested.
    ByteCount,
    /// The number of bytes, because the server has no checksums.
    Size,
    /// Checksums of both ends.
    Checksum {
        /// Algorithm.
        algorithm: ChecksumAlgorithm,
        /// The user named the algorithm, so the size is not enough.
        required: bool,
    },
}

impl Verification {
    /// Name of the comparison in summaries.
    pub(crate) fn label(self) -> String {
        match self {
            Self::ByteCount => "none".to_owned(),
            Self::Size => "size".to_owned(),
            Self::Checksum { algorithm, .. } => algorithm.name().to_ascii_lowercase(),
        }
    }

    /// Name of the comparison when only sizes were compared. If an end does not report its size,
    /// nothing was compared.
    pub(crate) fn size_label(self, has_size: bool) -> String {
        match self {
            Self::Size | Self::Checksum { .. } if has_size => Self::Size.label(),
            _ => Self::ByteCount.label(),
        }
    }

    /// Whether the user named the algorithm, so that nothing else is enough.
    pub(crate) fn is_required(self) -> bool {
        matches!(self, Self::Checksum { required: true, .. })
    }

    /// The algorithm, if there is one.
    pub(crate) fn algorithm(self) -> Option<ChecksumAlgorithm> {
        match self {
            Self::Checksum { algorithm, .. } => Some(algorithm),
            Self::ByteCount | Self::Size => None,
        }
    }
}

/// Checksum abilities of one end of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumAbility<'a> {
    /// Checksums that the end can provide.
    pub(crate) checksums: &'a AvailableChecksums,
    /// The copied bytes are the whole file at this end.
    pub(crate) is_whole_file: bool,
}

impl ChecksumAbility<'_> {
    fn names_none(&self) -> bool {
        self.checksums.ranges.is_empty() && self.checksums.whole_files.is_empty()
    }

    /// Whether the end can provide this checksum of the copied bytes.
    pub(crate) fn has(&self, algorithm: ChecksumAlgorithm) -> bool {
        self.checksums.ranges.contains(&algorithm)
            || (self.is_whole_file && self.checksums.whole_files.contains(&algorithm))
    }
}

/// Chooses the verification of a copy: by a checksum that all ends can provide.
///
/// # Errors
/// `Protocol` if an end lacks the algorithm that the user named.
pub(crate) fn choose_verification(
    requested: VerifyMode,
    ends: &[ChecksumAbility<'_>],
) -> Result<Verification, Failure> {
    let all_have = |algorithm| ends.iter().all(|end| end.has(algorithm));
    match requested {
        VerifyMode::None => Ok(Verification::ByteCount),
        VerifyMode::With(algorithm) if all_have(algorithm) => Ok(Verification::Checksum {
            algorithm,
            required: true,
        }),
        VerifyMode::With(algorithm) => {
            let reason = match ends.iter().any(ChecksumAbility::names_none) {
                true => "the server names no checksum before the copy, and so not",
                false => "the server cannot compute",
            };
            Err(Failure::protocol(format!(
                "{reason} {}; use --verify auto to take what it has",
                algorithm.name()
            )))
        }
        VerifyMode::Auto => Ok(ChecksumAlgorithm::CHEAPEST_FIRST
            .into_iter()
            .find(|a| all_have(*a))
            .map_or(Verification::Size, |algorithm| Verification::Checksum {
                algorithm,
                required: false,
            })),
    }
}

/// Comparison of the checksums of a finished copy and its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumComparison<'a> {
    pub(crate) check: Verification,
    /// Name of the copy or its source for messages.
    pub(crate) display_name: &'a str,
    /// Some bytes came in an attempt that the server did not confirm, so only a checksum can prove
    /// the copy.
    pub(crate) unconfirmed: bool,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ComparisonResult {
    /// Both ends have the same checksum.
    Same,
    /// The checksums differ. This is the failure if the copy cannot be repaired.
    Different(Failure),
    /// No checksums could be compared, for the reason in this warning. The sizes must be compared
    /// instead.
    SizeOnly(String),
}

impl ChecksumComparison<'_> {
    /// Evaluates the checksums of both ends, or the reason why one of them is missing.
    ///
    /// # Errors
    /// A missing checksum that the user named ([`FailureKind::Integrity`]) or that nothing else can replace
    /// ([`FailureKind::Protocol`]). A lost connection as it is.
    pub(crate) fn evaluate(
        self,
        algorithm: ChecksumAlgorithm,
        source: Result<String, Failure>,
        copy: Result<String, Failure>,
    ) -> Result<ComparisonResult, Failure> {
        let display_name = self.display_name;
        let reason = match (source, copy) {
            (Ok(source), Ok(copy)) => {
                let compared = compare_checksums(algorithm, &source, &copy, display_name);
                return Ok(match compared {
                    Ok(()) => ComparisonResult::Same,
                    Err(mismatch) => ComparisonResult::Different(mismatch),
                });
            }
            (Err(failure), _) | (_, Err(failure)) if failure.may_retry() => return Err(failure),
            (Err(failure), _) | (_, Err(failure)) => failure.whole(),
        };
        if self.unconfirmed {
            let unproved =
                ": the server did not confirm the transfer, and no checksum can prove the copy: ";
            let reason = Sentence::about(display_name)
                .words(unproved)
                .sentence(&reason);
            return Err(Failure::protocol(reason).advise("copy it again"));
        }
        if self.check.is_required() {
            let unverified = ": cannot be verified as requested: ";
            let reason = Sentence::about(display_name)
                .words(unverified)
                .sentence(&reason);
            return Err(Failure::new(FailureKind::Integrity, reason));
        }
        Ok(ComparisonResult::SizeOnly(format!(
            "{display_name}: verified by size only: {reason}"
        )))
    }
}

/// The words for a copy that is wrong. Whoever stores it under its final name says so instead.
pub(crate) const PARTIAL_NAME: &str = "the copy keeps its partial name";

/// Compares two checksums.
pub(crate) fn compare_checksums(
    algorithm: ChecksumAlgorithm,
    source: &str,
    destination: &str,
    display_name: &str,
) -> Result<(), Failure> {
    // Servers print hex digits in either case.
    if source.eq_ignore_ascii_case(destination) {
        return Ok(());
    }
    let reason = format_args!(
        "{} of the source is {source}, of the copy {destination}",
        algorithm.name()
    );
    Err(Failure::about(FailureKind::Integrity, display_name, reason).advise(PARTIAL_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(parts: &[ChecksumAlgorithm], whole: &[ChecksumAlgorithm]) -> AvailableChecksums {
        AvailableChecksums {
            ranges: parts.to_vec(),
            whole_files: whole.to_vec(),
        }
    }

    fn chosen(
        requested: VerifyMode,
        ends: &[&AvailableChecksums],
        whole: bool,
    ) -> Result<Verification, Failure> {
        let ends: Vec<_> = ends
            .iter()
            .map(|checksums| ChecksumAbility {
                checksums,
                is_whole_file: whole,
            })
            .collect();
        choose_verification(requested, &ends)
    }

    fn checksum(algorithm: ChecksumAlgorithm, required: bool) -> Verification {
        Verification::Checksum {
            algorithm,
            required,
        }
    }

    fn compared(
        disputed: bool,
        required: bool,
        copy: Result<&str, Failure>,
    ) -> Result<ComparisonResult, Failure> {
        let algorithm = ChecksumAlgorithm::Crc32c;
        let comparison = ChecksumComparison {
            check: Verification::Checksum {
                algorithm,
                required,
            },
            display_name: "f",
            unconfirmed: disputed,
        };
        comparison.evaluate(algorithm, Ok("AB".to_owned()), copy.map(str::to_owned))
    }

    #[test]
    fn available_checksums_decide_the_comparison() {
        for (disputed, required) in [(false, false), (true, false), (false, true)] {
            let same = compared(disputed, required, Ok("ab"));
            assert_eq!(same, Ok(ComparisonResult::Same));
            let other = compared(disputed, required, Ok("ac"));
            let Ok(ComparisonResult::Different(mismatch)) = other else {
                panic!("{other:?}");
            };
            assert_eq!(mismatch.kind(), FailureKind::Integrity);
            let lost = Failure::transient(FailureKind::Unreachable, "lost");
            let reason = compared(disputed, required, Err(lost.clone()));
            assert_eq!(reason, Err(lost));
        }
    }

    #[test]
    fn sizes_replace_a_missing_checksum_only_for_confirmed_optional_checks() {
        let reason = || Err(Failure::protocol("no CKSM"));
        let Ok(ComparisonResult::SizeOnly(warning)) = compared(false, false, reason()) else {
            panic!("the sizes are compared instead");
        };
        assert_eq!(warning, "f: verified by size only: no CKSM");
        let disputed = compared(true, false, reason()).unwrap_err();
        assert_eq!(disputed.kind(), FailureKind::Protocol);
        let asked_for = compared(false, true, reason()).unwrap_err();
        assert_eq!(asked_for.kind(), FailureKind::Integrity);
    }

    #[test]
    fn auto_chooses_the_cheapest_common_algorithm() {
        let globus = server(
            &[
                ChecksumAlgorithm::Md5,
                ChecksumAlgorithm::Adler32,
                ChecksumAlgorithm::Sha256,
            ],
            &[],
        );
        let longhaul = server(&ChecksumAlgorithm::CHEAPEST_FIRST, &[]);
        let auto = |ends: &[&AvailableChecksums]| chosen(VerifyMode::Auto, ends, true).unwrap();
        assert_eq!(
            auto(&[&longhaul]),
            checksum(ChecksumAlgorithm::Crc32c, false)
        );
        assert_eq!(
            auto(&[&globus]),
            checksum(ChecksumAlgorithm::Adler32, false)
        );
        assert_eq!(
            auto(&[&longhaul, &globus]),
            checksum(ChecksumAlgorithm::Adler32, false)
        );
        assert_eq!(auto(&[&longhaul, &server(&[], &[])]), Verification::Size);
    }

    #[test]
    fn whole_file_algorithms_do_not_verify_parts() {
        let plain = server(&[], &[ChecksumAlgorithm::Md5]);
        assert_eq!(
            chosen(VerifyMode::Auto, &[&plain], true),
            Ok(checksum(ChecksumAlgorithm::Md5, false))
        );
        assert_eq!(
            chosen(VerifyMode::Auto, &[&plain], false),
            Ok(Verification::Size)
        );
    }

    #[test]
    fn a_named_algorithm_has_no_fallback() {
        let globus = server(&[ChecksumAlgorithm::Md5], &[]);
        assert_eq!(
            chosen(VerifyMode::With(ChecksumAlgorithm::Md5), &[&globus], true),
            Ok(checksum(ChecksumAlgorithm::Md5, true))
        );
        let refused = chosen(
            VerifyMode::With(ChecksumAlgorithm::Blake3),
            &[&globus],
            true,
        )
        .unwrap_err();
        assert!(refused.to_string().contains("cannot compute BLAKE3"));
        let none = server(&[], &[]);
        let unnamed = chosen(VerifyMode::With(ChecksumAlgorithm::Md5), &[&none], true);
        let unnamed = unnamed.unwrap_err().to_string();
        assert!(
            unnamed.contains("names no checksum before the copy"),
            "{unnamed}"
        );
        assert_eq!(
            chosen(VerifyMode::None, &[&globus], true),
            Ok(Verification::ByteCount)
        );
        assert_eq!(Verification::ByteCount.label(), "none");
        assert_eq!(Verification::ByteCount.size_label(true), "none");
        assert_eq!(Verification::Size.size_label(true), "size");
        assert_eq!(
            checksum(ChecksumAlgorithm::Md5, false).size_label(false),
            "none"
        );
    }

    #[test]
    fn a_checksum_mismatch_is_an_integrity_failure() {
        assert_eq!(
            compare_checksums(ChecksumAlgorithm::Md5, "AB", "ab", "x"),
            Ok(())
        );
        let failure = compare_checksums(ChecksumAlgorithm::Md5, "ab", "cd", "x").unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Integrity);
        assert!(!failure.may_retry());
    }
}
