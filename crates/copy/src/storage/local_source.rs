//! Local files that are read: opened once, and known by their descriptor until the last byte is proved.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use data::store::file::FileSource;
use data::store::root::{FileChange, FileIdentity};
use proto::checksum::ChecksumAlgorithm;
use rustix::fs::{FileType, OFlags};

use super::local_calls::path_failure;
use super::open_source::OpenSource;
use crate::local::local_name::{LocalName, is_file};
use crate::local::partial::local_failure;
use crate::storage::local_checksum::checksum_local;
use ftp::answers::SourceFacts;
use ftp::failure::Sentence;
use ftp::{Failure, FailureKind};

/// Most times that a checksum is computed of a file whose attributes keep changing.
const MAX_LOOKS: u32 = 3;

/// Opens a file for reading. Facts are set only for regular files, which can be read again. A file that reports length 0 but
/// has content, as in proc(5), is read to its end like a pipe. What the user has not named himself must be a regular file.
/// Blocks, also until a pipe has a writer.
///
/// # Errors
/// `NotFound`, `Local`.
pub(super) fn open_source(name: &LocalName) -> Result<OpenSource, Failure> {
    let path = name.path();
    let failure = |e: io::Error| path_failure(path, &e);
    let there = name.stat().map_err(|errno| failure(errno.into()))?;
    let not_regular = || local_failure(path, "is not a regular file");
    let file = match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => name.open_to_read(),
        FileType::Directory => return Err(local_failure(path, "is a directory")),
        // Another process writes what is read here.
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice if name.follows() => {
            name.open_with(OFlags::RDONLY, 0)
        }
        _ => return Err(not_regular()),
    };
    let file = file.map_err(failure)?;
    let opened = rustix::fs::fstat(&file).map_err(|errno| failure(errno.into()))?;
    if is_file(&there) && !is_file(&opened) {
        // It was swapped, and was opened without waiting.
        return Err(not_regular());
    }
    let has_length =
        is_file(&opened) && (opened.st_size > 0 || is_empty(&file).map_err(failure)?);
    let name = path.to_string_lossy();
    if !has_length {
        return Ok(OpenSource {
            source: Arc::new(FileSource::sequential(file, name)),
            facts: None,
            identity: None,
        });
    }
    let identity = FileIdentity::once_settled(&file).map_err(failure)?;
    let facts = SourceFacts {
        size: Some(identity.size),
        ..SourceFacts::from_stat(&opened)
    };
    Ok(OpenSource {
        source: Arc::new(FileSource::new(file, name).map_err(failure)?),
        facts: Some(facts),
        identity: Some(identity),
    })
}

/// Whether a file has no first byte.
fn is_empty(file: &File) -> io::Result<bool> {
    file.read_at(&mut [0], 0).map(|n| n == 0)
}

/// The checksum of a file, or of a part of it, that is one version of it.
///
/// # Errors
/// `Integrity`: the file changes while it is read. `Local`.
pub(super) async fn checksum_of(
    mut opened: OpenSource,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<String, Failure> {
    let mut before = None;
    for _ in 0..MAX_LOOKS {
        let source = Arc::clone(&opened.source);
        let sum = checksum_local(algorithm, source, offset, length).await?;
        match opened.change_since_last_look()? {
            FileChange::None => return Ok(sum),
            FileChange::Content => break,
            FileChange::Attributes if before.as_ref() == Some(&sum) => return Ok(sum),
            FileChange::Attributes => before = Some(sum),
        }
    }
    let name = opened.source.name();
    let reason = Sentence::about(name).words(" changed while it was read");
    let advice = "try again when it no longer changes";
    Err(Failure::new(FailureKind::Integrity, reason).advise(advice))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OpenSource {
        open_source(&LocalName::of_user(path).unwrap()).unwrap()
    }

    #[test]
    fn a_file_with_reported_length_zero_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for content in ["", "x"] {
            fs::write(&path, content).unwrap();
            assert!(open(&path).facts.is_some());
        }
        let opened = open(Path::new("/proc/self/status"));
        assert_eq!(opened.facts, None);
        assert_eq!(opened.source.len().unwrap(), None);
        let mut name = [0; 5];
        assert_eq!(opened.source.read_at(0, &mut name).unwrap(), 5);
        assert_eq!(&name, b"Name:");
    }

    #[tokio::test]
    async fn a_checksum_is_of_one_version_of_a_file_whatever_happens_to_its_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let sum = async |opened| checksum_of(opened, ChecksumAlgorithm::Crc32c, 0, None).await;
        let before = sum(open(&path)).await.unwrap();
        let opened = open(&path);
        fs::hard_link(&path, dir.path().join("g")).unwrap();
        assert_eq!(sum(opened).await.unwrap(), before);
        let opened = open(&path);
        fs::write(&path, "two").unwrap();
        assert_eq!(
            sum(opened).await.unwrap_err().kind(),
            FailureKind::Integrity
        );
    }

    #[test]
    fn what_the_user_has_not_named_is_a_regular_file_or_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let fifo = at("fifo");
        let kind = FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("link")).unwrap();
        for name in ["fifo", "link"] {
            let failure = open_source(&LocalName::at(&at(name)).unwrap()).unwrap_err();
            assert!(
                failure.to_string().contains("not a regular file"),
                "{failure}"
            );
        }
    }
}
