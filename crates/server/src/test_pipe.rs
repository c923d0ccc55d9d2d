//! A named pipe for tests, where a file is expected.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Makes a pipe that only its owner may use. Opening it for reading blocks, unless with O_NONBLOCK.
pub(crate) fn make_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
