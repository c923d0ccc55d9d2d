//! Options about metadata and holes (`--preserve`, `--sparse`).

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

/// Metadata that copies take from their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Modification times.
    pub times: PreservedTimes,
    /// Permission bits of files and directories, without setuid, setgid and sticky.
    pub modes: bool,
    /// Several names of one file in a tree are names of one file at the destination, too.
    pub hard_links: bool,
}

/// Holes of files that are written on this machine: runs of zeros that take no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SparseFiles {
    /// A copy of a local file with holes has holes.
    #[default]
    Auto,
    /// Zeros are written as any other bytes.
    Never,
    /// All long runs of zeros become holes, also of files that servers send.
    Always,
}
