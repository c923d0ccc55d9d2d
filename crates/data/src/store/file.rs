//! Regular files, pipes and devices as source and sink.

use std::fs::File;
use std::io;

/// A file or pipe to send.
#[derive(Debug)]
pub struct FileSource {
    // private: file, name, sequential, position
}

impl FileSource {
    /// Wraps an open file; anything that cannot be read at an offset (pipe, socket, terminal) is
    /// sequential.
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        let _ = (file, name.into());
        todo!()
    }
}

/// A file, device or pipe to store into.
#[derive(Debug)]
pub struct FileSink {
    // private
}

impl FileSink {
    /// Wraps an open file; `/dev/null` takes any offset, a pipe only ascending ones.
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        let _ = (file, name.into());
        todo!()
    }

    /// The file, to sync, truncate or stat it.
    pub fn file(&self) -> &File {
        todo!()
    }
}
