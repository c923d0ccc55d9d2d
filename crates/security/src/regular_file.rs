//! Files that an administrator or a user names: credentials, tokens, authorities, gridmaps, passwords,
//! settings.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading, with its properties. A pipe or a device in its place neither blocks nor
/// is read without end.
///
/// # Errors
/// Those of the system; also a file that is not a regular one.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, OFlags::empty())
}

/// As [`open`]; a symbolic link is refused.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_no_link(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, OFlags::NOFOLLOW)
}

/// Reads an opened file of at most `longest` bytes into an empty buffer.
///
/// # Errors
/// Those of the system; also a file that is longer.
pub(crate) fn read(
    (file, metadata): (File, Metadata),
    longest: u64,
    content: &mut Vec<u8>,
) -> io::Result<()> {
    // Made at its full size: a buffer that grows leaves copies of secrets behind.
    let size = usize::try_from(metadata.len().min(longest)).unwrap_or(0);
    content.reserve_exact(size + 1);
    file.take(longest + 1).read_to_end(content)?;
    if content.len() as u64 > longest {
        let problem = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(())
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<(File, Metadata)> {
    // The standard library adds O_CLOEXEC.
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY)
        .bits()
        .cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // The open file is examined, because the name may lead to another one by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        let problem = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok((file, metadata))
}
