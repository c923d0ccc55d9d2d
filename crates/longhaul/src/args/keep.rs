//! Flags for what copies keep besides the bytes, and for the checksum file that they write. By default they also keep the
//! old file until the new one is complete.

use std::path::PathBuf;

use clap::Args;
use copy::{Preserve, PreservedTimes, SparseFiles, WriteSums};
use proto::checksum::ChecksumAlgorithm;

use super::values;

/// Flags of the verbs that copy.
#[derive(Debug, Args)]
#[command(next_help_heading = super::headings::CONTENT)]
pub(crate) struct KeepArgs {
    /// Metadata that copies keep, separated by commas: `times` (also of directories), `modes`
    /// (permissions), `links` (hard links), `all`; or `none`. Times of files are kept unless it is `none`. What a
    /// server cannot keep is told in a warning
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true, value_parser = parse_preserve)]
    pub(crate) preserve: Preserve,
    /// Holes in files that are written on this machine: `auto` keeps them for local sources that have some;
    /// `always` makes them of all long runs of zeros; `never` writes the zeros
    #[arg(long, value_name = "auto|never|always", default_value = "auto", value_parser = parse_sparse)]
    pub(crate) sparse: SparseFiles,
    /// Store files at servers under their final names from the first byte, also over existing files, whose old content is
    /// lost if the copy is interrupted. By default a file has a name ending in .longhaul-partial until it is
    /// complete. At servers that refuse such names or cannot rename, a file gets its final name at once only if
    /// there is none of that name yet
    #[arg(long, help_heading = super::headings::RELIABILITY)]
    pub(crate) in_place: bool,
    /// Write the checksums of the copied files to FILE, in the format of sha256sum(1), with names relative to
    /// DST; of all files of the tree for `sync`. `longhaul cksum --check` and `sha256sum -c` check them
    #[arg(long, value_name = "FILE")]
    write_sums: Option<PathBuf>,
    /// Write to FILE what was copied, as lines of JSON: source, destination, size and digest of each file, who computed it, how
    /// the copy was verified, and when. `longhaul verify FILE` compares the files with it later
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Sign the receipt with this ssh key, by `ssh-keygen -Y sign`: the signature is in FILE.sig
    #[arg(long, value_name = "KEY")]
    pub(crate) receipt_key: Option<PathBuf>,
    /// Algorithm for --write-sums and --receipt [default: the one in the name of FILE, such as MD5SUMS, otherwise sha256]
    #[arg(long, value_name = "ALG", value_parser = super::data_values::parse_algorithm)]
    sums_algorithm: Option<ChecksumAlgorithm>,
}

impl KeepArgs {
    /// The flags of a node: another process writes the checksum file and the receipt.
    pub(crate) fn on_node(self) -> Self {
        Self {
            write_sums: None,
            receipt: None,
            receipt_key: None,
            sums_algorithm: None,
            ..self
        }
    }

    /// The checksum file to write.
    pub(crate) fn write_sums(&self) -> Option<WriteSums> {
        let path = self.write_sums.clone()?;
        Some(WriteSums::new(path, self.sums_algorithm))
    }

    /// The receipt to write.
    pub(crate) fn receipt(&self) -> Option<WriteSums> {
        let path = self.receipt.clone()?;
        Some(WriteSums::new(path, self.sums_algorithm))
    }
}

fn parse_sparse(text: &str) -> Result<SparseFiles, String> {
    let names = [
        ("auto", SparseFiles::Auto),
        ("never", SparseFiles::Never),
        ("always", SparseFiles::Always),
    ];
    values::parse_name(text, &names)
}

fn parse_preserve(text: &str) -> Result<Preserve, String> {
    let mut preserve = Preserve::default();
    for name in text.split(',').filter(|_| !text.is_empty()) {
        let is_all = name == "all";
        match name {
            "none" if text == "none" => preserve.times = PreservedTimes::None,
            "times" | "modes" | "links" | "all" => {}
            _ => return Err("use times, modes, links or all, separated by commas, or none".into()),
        }
        if is_all || name == "times" {
            preserve.times = PreservedTimes::FilesAndDirectories;
        }
        preserve.modes |= is_all || name == "modes";
        preserve.hard_links |= is_all || name == "links";
    }
    Ok(preserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserve_takes_a_list_or_none() {
        let preserve = parse_preserve;
        let all = preserve("all").unwrap();
        assert!(all.modes && all.hard_links);
        assert_eq!(all.times, PreservedTimes::FilesAndDirectories);
        let modes = preserve("modes").unwrap();
        assert!(modes.modes && !modes.hard_links);
        assert_eq!(modes.times, PreservedTimes::Files);
        assert_eq!(preserve("times,modes,links").unwrap(), all);
        assert_eq!(preserve("none").unwrap().times, PreservedTimes::None);
        assert_eq!(preserve("").unwrap(), Preserve::default());
        for wrong in ["mode", "times,", "none,times", "times modes"] {
            assert!(preserve(wrong).unwrap_err().contains("modes"), "{wrong}");
        }
    }
}
