//! Flags of `longhaul sync`.

use clap::Args;
use copy::{Failure, SyncOptions};
use ftp::protection::WarningSink;

use super::cp::CopyFlags;
use super::headings;
use super::place::place;

/// Make one directory tree like another
///
/// Copies the files of SRC that DST does not have, or has with another size or time. Both are
/// directories: paths, or URLs as for `cp`; between two FTP servers the data goes directly. As with
/// rclone, a slash at the end means nothing: the content of SRC becomes the content of DST.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SyncArgs {
    /// Delete what DST has and SRC does not. Nothing is deleted if SRC has no files, a part of it cannot
    /// be listed, or a file could not be copied; files that the selection leaves out are left alone
    #[arg(long, help_heading = headings::CONTENT)]
    delete: bool,
    /// Compare files of the same size by checksum instead of by time
    #[arg(long, help_heading = headings::CONTENT)]
    checksum: bool,
    /// Directories and everything in them: always so, accepted because cp needs it
    #[arg(short = 'r', short_alias = 'R', long, help_heading = headings::CONTENT)]
    recursive: bool,
    #[command(flatten)]
    pub(crate) flags: CopyFlags,
    /// The tree to copy
    #[arg(value_name = "SRC", value_parser = place(), help_heading = None::<&str>)]
    pub(crate) source: String,
    /// The tree to change
    #[arg(value_name = "DST", value_parser = place(), help_heading = None::<&str>)]
    pub(crate) destination: String,
}

impl SyncArgs {
    /// The flags of one of some nodes.
    pub(crate) fn on_node(self, nodes: usize) -> Self {
        Self {
            flags: self.flags.on_node(nodes),
            ..self
        }
    }

    /// The flags as [`SyncOptions`]; warnings about protection go to `warn`.
    ///
    /// # Errors
    /// As [`CopyFlags::options`].
    pub(crate) fn options(&self, warn: WarningSink) -> Result<SyncOptions, Failure> {
        Ok(SyncOptions {
            copy: self.flags.options(warn)?,
            delete: self.delete,
            checksum: self.checksum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;

    #[test]
    fn sync_is_recursive_with_r_and_without() {
        for flags in [&[][..], &["-r"], &["-R"], &["--recursive"]] {
            let args: SyncArgs = parse_flags(&[flags, &["a", "b"]].concat()).unwrap();
            let options = args.options(std::sync::Arc::new(|_: &str| ())).unwrap();
            assert!(options.copy.tree.recursive);
        }
    }
}
