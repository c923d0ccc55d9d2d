//! Checksums of single files of a bundle.

use std::fs::File;
use std::io;

use proto::bundle::CHECKSUM;

use crate::checksum::checksum_source;
use crate::store::Source;
use crate::store::file::FileSource;
use crate::store::memory::MemorySource;

/// The checksum of a file. `None`: it cannot be opened or read.
pub(super) fn checksum_of(file: io::Result<File>) -> Option<String> {
    let source = file.and_then(|file| FileSource::new(file, "file of a bundle"));
    source.ok().and_then(|source| whole_checksum(&source))
}

/// The checksum of an empty file.
pub(super) fn checksum_of_nothing() -> Option<String> {
    whole_checksum(&MemorySource::new(Vec::new(), "nothing"))
}

fn whole_checksum(source: &dyn Source) -> Option<String> {
    let checksum = checksum_source(CHECKSUM, source, 0, None, &mut |_| true);
    checksum
        .inspect_err(|error| tracing::debug!(%error, "no checksum of a file of a bundle"))
        .ok()
}
