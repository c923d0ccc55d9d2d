//! FEAT (RFC 2389 §3): the features that existing clients look for.

use super::SessionConfig;
use crate::checksum::ChecksumAlgorithm;
use crate::feature::{BUNDLE_MODULE, NODES_BY_DIRECTORY, STORES_WHOLE};
use crate::listing::FactSet;
use crate::reply::Reply;
use crate::sizing;
use crate::streams;

/// Algorithms of the CKSM line, each with a preference number as the globus server writes it.
const CHECKSUMS: [(ChecksumAlgorithm, u32); 9] = [
    (ChecksumAlgorithm::Md5, 10),
    (ChecksumAlgorithm::Adler32, 10),
    (ChecksumAlgorithm::Sha1, 10),
    (ChecksumAlgorithm::Sha256, 11),
    (ChecksumAlgorithm::Sha512, 12),
    (ChecksumAlgorithm::Crc32c, 10),
    (ChecksumAlgorithm::Crc32, 10),
    (ChecksumAlgorithm::Blake3, 10),
    (ChecksumAlgorithm::Crc64Nvme, 10),
];

/// Lines of FEAT after those of CKSM. GETPUT is none: globus-url-copy 10.12 then uses GET and PUT, and crashes with `-pp` between two
/// servers.
const FEATURES: [&str; 26] = [
    "STORATTR",
    "MFMT",
    "WHOAMI",
    "MLSR",
    "MLSC",
    "UTF8",
    "LANG EN",
    "CLNT",
    "EPSV",
    "EPRT",
    "TVFS",
    "PARALLEL",
    "SIZE",
    "SIZE.LIST",
    "ERET",
    "ESTO",
    "SPAS",
    "SPOR",
    "DATAPEER",
    BUNDLE_MODULE,
    "DEFLATE BUNDLE;MLSR;",
    "SBUF",
    "ABUF",
    "REST STREAM",
    "MDTM",
    "PASV AllowDelayed;",
];

/// The 211 reply; `facts` are those that MLSD and MLST show. The reply is the same before and after
/// login, since lftp asks only before login.
/// `with_data_credentials`: see [`ExchangeKind::has_data_credentials`](crate::security::ExchangeKind::has_data_credentials).
pub(super) fn reply(facts: FactSet, config: &SessionConfig, with_data_credentials: bool) -> Reply {
    let mut checksums = "CKSM ".to_owned();
    for (algorithm, rank) in CHECKSUMS {
        checksums.push_str(&format!("{}:{rank};", algorithm.name()));
    }
    let mut lines = vec![
        checksums.into_bytes(),
        b"CKSM.STOR".to_vec(),
        b"CKSM.RETR".to_vec(),
        facts.feature_line().into_bytes(),
    ];
    let features = FEATURES
        .iter()
        .filter(|name| !config.stores_objects || suits_objects(name));
    lines.extend(features.map(|name| name.as_bytes().to_vec()));
    if config.stores_objects {
        lines.extend([b"DEFLATE MLSR;".to_vec(), STORES_WHOLE.as_bytes().to_vec()]);
    }
    if config.nodes_by_directory {
        lines.push(NODES_BY_DIRECTORY.as_bytes().to_vec());
    }
    lines.push(sizing::feature_line().into_bytes());
    lines.push(streams::feature_line(!config.congestion_controls.is_empty()).into_bytes());
    if let Some(port) = config.enable_port {
        lines.push(format!("ENABLE PORT={port};").into_bytes());
    }
    lines.extend(security_lines(config, with_data_credentials));
    Reply::with_inner_lines(211, "Extensions supported", lines, "End.")
}

/// Whether a feature is announced where files are objects.
fn suits_objects(feature: &str) -> bool {
    !matches!(feature, "MFMT" | "ESTO") && !feature.contains(BUNDLE_MODULE)
}

/// Lines about security (RFC 4217 §6).
fn security_lines(config: &SessionConfig, with_data_credentials: bool) -> Vec<Vec<u8>> {
    let mechanisms = config.mechanisms.iter();
    let mut lines: Vec<String> = mechanisms.map(|m| format!("AUTH {}", m.name)).collect();
    let mut add = |names: &[&str]| lines.extend(names.iter().map(|name| (*name).to_owned()));
    if !config.mechanisms.is_empty() {
        add(&["PBSZ", "PROT"]);
    }
    // In other sessions gfal and globus-url-copy would use DCAU too, and fail.
    if with_data_credentials {
        add(&["DCAU", "DCSC P,D"]);
    }
    if config.bearer_tokens {
        add(&["BEARER USER=:bearer:;"]);
    }
    lines.into_iter().map(String::into_bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::feature::ServerFeatures;

    #[test]
    fn a_server_of_objects_announces_what_it_can_do() {
        let config = |stores_objects| SessionConfig {
            stores_objects,
            ..SessionConfig::new(Ipv4Addr::LOCALHOST.into())
        };
        let features = |config| {
            let reply = reply(FactSet::default(), &config, false);
            ServerFeatures::from_reply(&reply)
        };
        let (files, objects) = (features(config(false)), features(config(true)));
        assert!(files.mfmt && files.esto && files.bundles && files.packed_bundles);
        assert!(!files.stores_whole);
        assert!(!(objects.mfmt || objects.esto || objects.bundles || objects.packed_bundles));
        assert!(objects.stores_whole && objects.deflated_trees && objects.eret);
        assert!(!files.nodes_by_directory);
        let apart = SessionConfig {
            nodes_by_directory: true,
            ..config(false)
        };
        assert!(features(apart).nodes_by_directory);
    }
}
