//! The outline of a receipt: whether it is whole, and what its end says.

use std::io::{BufRead, Read};
use std::path::Path;

use ftp::{Failure, FailureKind};

use super::receipt::{FORMAT, ReceiptLine};
use crate::local::partial::local_failure;

/// Longest line, bytes: two paths of 4096 bytes with escapes, and the rest.
const MAX_LINE: u64 = 128 << 10;

/// The end of a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptOutline {
    /// The directory that the names are below, as a path or URL.
    pub base: String,
    /// Files that are in it.
    pub files: u64,
    /// Files that the copy could not move, and that are not in it.
    pub failed: u64,
}

/// Reads a receipt to its end. `name`: that of the file.
///
/// # Errors
/// `Usage`: it is no receipt, or of a later version. `Integrity`: it has no end, or not the files or bytes that its end counts. `Local`: it
/// cannot be read.
pub fn read_receipt(lines: &mut dyn BufRead, name: &Path) -> Result<ReceiptOutline, Failure> {
    let usage = |why: &str| Failure::usage(format!("{}: {why}", name.display()));
    let mut last = None;
    let mut is_first = true;
    let (mut listed, mut bytes) = (0, 0_u64);
    loop {
        let mut line = Vec::new();
        let read = (&mut *lines).take(MAX_LINE).read_until(b'\n', &mut line);
        if read.map_err(|error| local_failure(name, error))? == 0 {
            break;
        }
        let parsed = ReceiptLine::parse(&line);
        match (&parsed, is_first) {
            (Some(ReceiptLine::Receipt(begin)), true) if begin.format > FORMAT => {
                return Err(usage("it is of a later version of longhaul"));
            }
            (Some(ReceiptLine::Receipt(_)), true) => {}
            (_, true) => return Err(usage("it is no receipt of longhaul (cp --receipt)")),
            (Some(ReceiptLine::File(file)), false) => {
                listed += u64::from(file.sum().is_some());
                bytes = bytes.saturating_add(file.bytes.unwrap_or(0));
            }
            (Some(_), false) => {}
            (None, false) => return Err(usage("a line of it is not one of a receipt")),
        }
        is_first = false;
        last = parsed;
    }
    let broken = |why: &str| {
        let message = format!("{}: {why}", name.display());
        Err(Failure::new(FailureKind::Integrity, message))
    };
    match last {
        Some(ReceiptLine::End(end)) if end.files != listed => broken(&format!(
            "it has {listed} files, and says that there are {}",
            end.files
        )),
        Some(ReceiptLine::End(end)) if end.bytes != bytes => broken(&format!(
            "its files have {bytes} bytes, and it says that they have {}",
            end.bytes
        )),
        Some(ReceiptLine::End(end)) => Ok(ReceiptOutline {
            base: end.base,
            files: end.files,
            failed: end.failed,
        }),
        None if is_first => Err(usage("it is empty")),
        _ => broken("its end is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = r#"{"line":"receipt","format":1,"program":"longhaul","host":"h","started":"","destination":"/d","sync":"file"}"#;
    const END: &str = r#"{"line":"end","base":"/d","ended":"","files":0,"bytes":0,"failed":0}"#;

    fn read(lines: &[&str]) -> Result<ReceiptOutline, FailureKind> {
        let text = lines.join("\n");
        read_receipt(&mut text.as_bytes(), Path::new("r")).map_err(|failure| failure.kind())
    }

    #[test]
    fn a_receipt_without_its_end_is_not_whole() {
        assert_eq!(read(&[BEGIN, END]).unwrap().base, "/d");
        assert_eq!(read(&[BEGIN]), Err(FailureKind::Integrity));
        assert_eq!(read(&[BEGIN, END, BEGIN]), Err(FailureKind::Integrity));
        let more = END.replace("\"files\":0", "\"files\":1");
        assert_eq!(read(&[BEGIN, &more]), Err(FailureKind::Integrity));
        let more = END.replace("\"bytes\":0", "\"bytes\":1");
        assert_eq!(read(&[BEGIN, &more]), Err(FailureKind::Integrity));
        for other in [&[][..], &["{}"], &[END], &[BEGIN, "x", END]] {
            assert_eq!(read(other), Err(FailureKind::Usage), "{other:?}");
        }
        let later = BEGIN.replace("\"format\":1", "\"format\":2");
        assert_eq!(read(&[&later, END]), Err(FailureKind::Usage));
    }
}
