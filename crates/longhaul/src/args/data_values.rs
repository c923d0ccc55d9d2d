//! Values of flags about moving bytes and storing them, shared by `cp`, `sync` and `serve`.

use data::options::IoMethod;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;

use super::values;

/// Parses a block size, 64 KiB to 64 MiB.
pub(super) fn parse_block_size(text: &str) -> Result<usize, String> {
    let bytes = units::size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes)
        .ok()
        // Smaller blocks waste time on headers and system calls; larger ones delay the end of a
        // stream and take memory for each one.
        .filter(|b| (64 << 10..=64 << 20).contains(b))
        .ok_or_else(|| "use a size from 64Ki to 64Mi".into())
}

/// Parses `--sync-policy`.
pub(super) fn parse_sync_policy(text: &str) -> Result<SyncPolicy, String> {
    SyncPolicy::parse(text).ok_or_else(|| "use file or none".into())
}

/// Parses `--io`.
pub(super) fn parse_io_method(text: &str) -> Result<IoMethod, String> {
    let names = [
        ("auto", IoMethod::Auto),
        ("copy", IoMethod::Copy),
        ("sendfile", IoMethod::Sendfile),
        ("splice", IoMethod::Splice),
        ("zerocopy", IoMethod::Zerocopy),
    ];
    values::parse_name(text, &names)
}

/// Parses the name of a checksum algorithm.
pub(super) fn parse_algorithm(text: &str) -> Result<ChecksumAlgorithm, String> {
    ChecksumAlgorithm::parse(text).ok_or_else(|| {
        let names: Vec<_> = ChecksumAlgorithm::CHEAPEST_FIRST
            .iter()
            .map(|a| a.name().to_ascii_lowercase())
            .collect();
        format!("'{text}' is not one of {}", names.join(" "))
    })
}
