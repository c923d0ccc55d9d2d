//! What copies keep of their sources (`--preserve`).

/// Modification times that a copy keeps, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreservedTimes {
    /// None: files have the time of the copy.
    None,
    /// Those of files.
    #[default]
    Files,
    /// Those of files and directories.
    FilesAndDirectories,
}

/// What copies keep of their sources besides the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Modification times.
    pub times: PreservedTimes,
    /// Permission bits of files and directories, without setuid, setgid and sticky.
    pub modes: bool,
    /// Several names of one file in a tree are names of one file at the destination, too.
    pub hard_links: bool,
}
