//! `cksum --check`: prints the result of each file, as sha256sum(1) does.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use copy::{CheckTotals, CheckedFile, CheckedSum, Failure, FailureKind, RemoteOptions};

use proto::checksum::ChecksumAlgorithm;

use crate::args::CksumArgs;
use crate::output::{ignore_broken_pipe, print_listing_line, print_to_stderr};
use units::show;

/// Checks the files that `sums` names.
pub(crate) async fn check_sums(
    args: &CksumArgs,
    sums: &Path,
    options: &RemoteOptions,
) -> Result<(), Failure> {
    let base = match args.urls.as_slice() {
        [] => ".",
        [base] => base,
        _ => {
            return Err(Failure::usage("--check takes one directory or URL"));
        }
    };
    let mut lines = open(sums)?;
    let is_left_out = |result: &CheckedSum| match result {
        CheckedSum::Matches => args.quiet,
        CheckedSum::Missing => args.ignore_missing,
        CheckedSum::Differs | CheckedSum::Unreadable(_) => false,
    };
    let place = (sums, base);
    let compared = compare(&mut *lines, place, args.algorithm, options, is_left_out);
    let (totals, first_unreadable) = compared.await?;
    if totals.malformed > 0 {
        print_to_stderr(&format!(
            "longhaul: warning: {} of {} without a checksum",
            show::count(totals.malformed, "line"),
            sums.display()
        ));
    }
    verdict(totals, args.ignore_missing, first_unreadable)
}

/// Compares the files of `lines`, which are those of a file, below a base, and prints each result that is not left out. Returns
/// the first file that cannot be read, too.
pub(crate) async fn compare(
    lines: &mut (dyn BufRead + Send),
    (name, base): (&Path, &str),
    algorithm: Option<ChecksumAlgorithm>,
    options: &RemoteOptions,
    is_left_out: impl Fn(&CheckedSum) -> bool + Sync,
) -> Result<(CheckTotals, Option<Failure>), Failure> {
    let mut printed = Ok(());
    let mut first_unreadable = None;
    let mut visit = |file: CheckedFile| {
        if let CheckedSum::Unreadable(failure) = &file.result {
            print_to_stderr(&format!("longhaul: {failure}"));
            first_unreadable.get_or_insert_with(|| failure.clone());
        }
        if printed.is_ok() && !is_left_out(&file.result) {
            printed = print_result(&file);
        }
    };
    let totals = copy::check_sums(lines, name, algorithm, base, options, &mut visit).await?;
    ignore_broken_pipe(printed).map(|()| (totals, first_unreadable))
}

fn open(sums: &Path) -> Result<Box<dyn BufRead + Send>, Failure> {
    if sums == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(sums).map_err(|error| {
        let kind = FailureKind::of_named_file(&error);
        Failure::new(kind, format!("{}: {error}", sums.display()))
    })?;
    Ok(Box::new(BufReader::new(file)))
}

/// Prints `NAME: OK` and the like; a name with line ends as in the checksum file.
///
/// # Errors
/// Standard output cannot be written.
fn print_result(file: &CheckedFile) -> io::Result<()> {
    let result = match &file.result {
        CheckedSum::Matches => "OK",
        CheckedSum::Differs => "FAILED",
        CheckedSum::Missing => "MISSING",
        CheckedSum::Unreadable(_) => "FAILED open or read",
    };
    let name = copy::escape_sums_name(&file.name);
    let (mark, name) = match &name {
        Some(escaped) => ("\\", escaped),
        None => ("", &file.name),
    };
    print_listing_line(&[mark.as_bytes(), name, b": ", result.as_bytes()].concat())
}

/// The failure of the whole check: the worst first.
pub(crate) fn verdict(
    totals: CheckTotals,
    ignore_missing: bool,
    first_unreadable: Option<Failure>,
) -> Result<(), Failure> {
    let all = show::count(totals.files(), "file");
    if totals.differing > 0 {
        let mut message = format!("another checksum: {} of {all}", totals.differing);
        if totals.missing > 0 && !ignore_missing {
            message.push_str(&format!("; missing: {}", totals.missing));
        }
        return Err(Failure::new(FailureKind::Integrity, message));
    }
    if totals.missing > 0 && !ignore_missing {
        let message = format!("missing: {} of {all}", totals.missing);
        return Err(Failure::new(FailureKind::NotFound, message));
    }
    if let Some(failure) = first_unreadable {
        let message = format!("cannot be read: {} of {all}", totals.unreadable);
        return Err(Failure::new(failure.kind(), message));
    }
    match totals.matching {
        0 => Err(Failure::new(
            FailureKind::NotFound,
            "no file was checked: all are missing",
        )),
        _ => Ok(()),
    }
}
