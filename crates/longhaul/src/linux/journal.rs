//! The log in the journal of systemd, with the fields of each message (`journalctl -t longhaul -o json`).

use std::io;
use std::os::fd::AsFd;

/// Name of the program in the journal.
const IDENTIFIER: &str = "longhaul";

/// The writer of the journal. It opens its socket now, so it must be made before the process is confined.
///
/// # Errors
/// There is no journal on this host.
pub(crate) fn writer() -> io::Result<tracing_journald::Layer> {
    // Names such as PEER and USER would mix with those of other programs.
    let layer = tracing_journald::layer()?.with_field_prefix(Some(IDENTIFIER.to_uppercase()));
    Ok(layer.with_syslog_identifier(IDENTIFIER.to_owned()))
}

/// Whether standard error leads to the journal: systemd names device and inode of its stream in JOURNAL_STREAM
/// (systemd.exec(5)), which programs that write elsewhere inherit, too.
pub(crate) fn is_standard_error() -> bool {
    let named = std::env::var("JOURNAL_STREAM");
    named.is_ok_and(|stream| is_stream(&stream, io::stderr()))
}

fn is_stream(named: &str, output: impl AsFd) -> bool {
    let output = rustix::fs::fstat(output);
    output.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_stream_is_the_journal_only_if_device_and_inode_are_those_of_the_variable() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        let (device, inode) = (meta.dev(), meta.ino());
        assert!(is_stream(&format!("{device}:{inode}"), &file));
        for other in ["", "0:0", &format!("{device}:{}", inode + 1)] {
            assert!(!is_stream(other, &file), "{other}");
        }
    }
}
