//! Reading of small files that an administrator names.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a whole text file of at most `most` bytes. A pipe or a device in its place neither blocks nor is
/// read without end.
///
/// # Errors
/// Those of the system; also a file that is not a regular one, is longer than `most`, or is not UTF-8.
pub(crate) fn read_to_string(path: &Path, most: u64) -> io::Result<String> {
    // The standard library adds O_CLOEXEC.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // The open file is examined, because the name may lead to another one by now.
    if !file.metadata()?.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    let mut text = String::new();
    let read = file.take(most + 1).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(invalid(format!("it is longer than {most} bytes")));
    }
    Ok(text)
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
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
    }
}
