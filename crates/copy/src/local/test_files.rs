//! Special files for tests.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Makes a named pipe without a writer, which a plain open(2) for reading would wait for.
pub(crate) fn make_pipe(folder: &Path) -> PathBuf {
    let pipe = folder.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    pipe
}
