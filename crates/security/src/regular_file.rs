//! Files that hold credentials, authorities and gridmaps.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading, with its properties. A pipe or a device in its place neither blocks nor
/// is read without end.
///
/// # Errors
/// Those of the system; also a file that is not a regular one.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // The standard library adds O_CLOEXEC.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // The open file is examined, because the name may lead to another one by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        let problem = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok((file, metadata))
}
