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
pub fn open_no_link(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, OFlags::NOFOLLOW)
}

/// Reads an opened file of at most `longest` bytes into an empty buffer.
///
/// # Errors
/// Those of the system; also a file that is longer.
pub fn read(
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

/// Reads a whole text file of at most `longest` bytes.
///
/// # Errors
/// Those of [`open`] and [`read`]; also a file that is not UTF-8.
pub fn read_to_string(path: &Path, longest: u64) -> io::Result<String> {
    let mut content = Vec::new();
    read(open(path)?, longest, &mut content)?;
    String::from_utf8(content).map_err(|error| {
        let problem = format!("it is not UTF-8: {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_a_device_and_a_long_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            assert!(read_to_string(path, 100).is_err(), "{}", path.display());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(read_to_string(&file, 4).unwrap(), "four");
        let error = read_to_string(&file, 3).unwrap_err().to_string();
        assert!(error.contains("longer than 3 bytes"), "{error}");
        std::fs::write(&file, b"\xff").unwrap();
        assert!(read_to_string(&file, 4).is_err());
    }

    #[test]
    fn a_link_is_followed_only_where_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open(&link).is_ok());
        assert!(open_no_link(&link).is_err());
        assert!(open_no_link(&file).is_ok());
    }
}
