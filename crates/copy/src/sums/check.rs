//! `cksum --check`: compares the files of a tree with the checksums of a file.

use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;

use super::line::{SumLine, parse_line};
use super::read_back::read_checksum;
use super::receipt::ReceiptLine;
use super::results::{CheckTotals, CheckedFile, CheckedSum};
use crate::local::partial::local_failure;
use crate::options::RemoteOptions;
use crate::options::without_byte_order_mark;
use crate::storage::contract::Storage;
use crate::storage::entry_names::join_path;
use crate::storage_access::StorageAccess;
use ftp::location::Location;
use ftp::session::{ListingUse, SessionOpening};
use ftp::{Failure, FailureKind};

/// Longest line, bytes. Paths of Linux have at most 4096, and the lines escape some.
const MAX_LINE: u64 = 64 << 10;
/// Most files that are asked for together.
const MAX_QUERIES: usize = 64;

/// Receives the result of each file, in the order of the lines.
pub(crate) type CheckVisitor<'v> = dyn FnMut(CheckedFile) + Send + 'v;

/// Compares the files below `base` with the checksums in `sums`, whose name for messages is `name`. `algorithm`: that
/// of lines that name none.
///
/// # Errors
/// `Usage`: no line has a checksum, or one is too long. `Unreachable`: the server is lost. `Local`: `sums` cannot be
/// read.
pub(crate) async fn check(
    sums: &mut (dyn BufRead + Send),
    name: &Path,
    algorithm: Option<ChecksumAlgorithm>,
    base: &str,
    options: &RemoteOptions,
    visit: &mut CheckVisitor<'_>,
) -> Result<CheckTotals, Failure> {
    let base = Location::parse_secured(base, &options.security)?;
    options
        .security
        .check_use(&base.server().into_iter().collect::<Vec<_>>())?;
    let access = StorageAccess {
        timeout: options.timeout,
        foreign_data: false,
        listing_use: ListingUse::Reading,
        sync_policy: SyncPolicy::default(),
        trees: Arc::default(),
    };
    let mut lines = SumLines {
        sums,
        name,
        algorithm,
        totals: CheckTotals::default(),
    };
    let mut storage = None;
    loop {
        let batch = lines.next_batch()?;
        if batch.is_empty() {
            break;
        }
        let storage = match &mut storage {
            Some(storage) => storage,
            // Not before there is something to check.
            none => {
                let opening = SessionOpening::default();
                none.insert(access.open(&base.storage_id(), opening).await?)
            }
        };
        for same in batch.chunk_by(|a, b| a.algorithm == b.algorithm) {
            let sums = checksums(&mut **storage, &base, same, options).await?;
            for (line, sum) in same.iter().zip(sums) {
                let result = compare(line, sum);
                lines.totals.count(&result);
                visit(CheckedFile {
                    name: line.name.clone(),
                    result,
                });
            }
        }
    }
    if let Some(storage) = storage {
        storage.close().await;
    }
    match lines.totals.files() {
        0 => Err(Failure::usage(format!(
            "{}: no line has a checksum and a name",
            name.display()
        ))),
        _ => Ok(lines.totals),
    }
}

/// As for sha256sum(1), names are relative to the base, unless they are absolute.
fn path_of(base: &Location, name: &[u8]) -> Vec<u8> {
    match name.starts_with(b"/") {
        true => name.to_vec(),
        false => join_path(base.path(), name),
    }
}

fn compare(line: &SumLine, sum: Result<String, Failure>) -> CheckedSum {
    match sum {
        Ok(sum) if sum.eq_ignore_ascii_case(&line.checksum) => CheckedSum::Matches,
        Ok(_) => CheckedSum::Differs,
        Err(failure) if failure.is_missing() => CheckedSum::Missing,
        Err(failure) => CheckedSum::Unreadable(failure),
    }
}

/// The checksums of the files of lines of one algorithm; from their bytes where the storage cannot compute one.
async fn checksums(
    storage: &mut dyn Storage,
    base: &Location,
    lines: &[SumLine],
    options: &RemoteOptions,
) -> Result<Vec<Result<String, Failure>>, Failure> {
    let Some(algorithm) = lines.first().map(|line| line.algorithm) else {
        return Ok(Vec::new());
    };
    let paths: Vec<Vec<u8>> = lines.iter().map(|l| path_of(base, &l.name)).collect();
    let borrowed: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    let mut sums = storage.file_checksums(algorithm, &borrowed).await?;
    for (sum, path) in sums.iter_mut().zip(&paths) {
        if sum
            .as_ref()
            .is_err_and(|f| f.kind() == FailureKind::Protocol)
        {
            *sum = read_checksum(storage, algorithm, path, options.timeout).await;
        }
        if let Err(failure) = sum
            && failure.kind().is_unreachable()
        {
            return Err(failure.clone());
        }
    }
    Ok(sums)
}

/// The lines of a checksum file.
struct SumLines<'s> {
    sums: &'s mut (dyn BufRead + Send),
    name: &'s Path,
    algorithm: Option<ChecksumAlgorithm>,
    totals: CheckTotals,
}

impl SumLines<'_> {
    /// The next lines; none at the end.
    fn next_batch(&mut self) -> Result<Vec<SumLine>, Failure> {
        let mut batch = Vec::new();
        while batch.len() < MAX_QUERIES {
            let Some(line) = self.next_line()? else {
                break;
            };
            let line = without_byte_order_mark(&line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match ReceiptLine::parse(line) {
                Some(ReceiptLine::Receipt(_) | ReceiptLine::End(_)) => continue,
                Some(ReceiptLine::File(file)) => self.take(&mut batch, file.sum()),
                None => self.take(&mut batch, parse_line(line, self.algorithm)),
            }
        }
        Ok(batch)
    }

    fn take(&mut self, batch: &mut Vec<SumLine>, sum: Option<SumLine>) {
        match sum {
            Some(sum) => batch.push(sum),
            None => self.totals.malformed += 1,
        }
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let mut limited = (&mut *self.sums).take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut line);
        let read = read.map_err(|e| local_failure(self.name, e))?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read as u64 == MAX_LINE {
            return Err(Failure::usage(format!(
                "{}: a line is too long",
                self.name.display()
            )));
        }
        Ok((read > 0).then_some(line))
    }
}
