//! Features of a server, from its FEAT reply (RFC 2389 §3).

use crate::checksum::ChecksumAlgorithm;
use crate::reply::Reply;
use crate::security::is_name_of_tls;
use crate::sizing::{self, BufferSizing};
use crate::streams;

/// Line of FEAT for bundles ([`crate::bundle`]), and their module of ERET and ESTO.
pub const BUNDLE_MODULE: &str = "BUNDLE";

/// Line of FEAT of a server whose files are objects: nobody sees a part of one, so that an upload needs no name of its own.
pub const STORES_WHOLE: &str = "STOR.WHOLE";
/// The line of a server whose data nodes differ by directory.
pub const NODES_BY_DIRECTORY: &str = "SPAS.CWD";

/// Features that a server has announced. The default is a plain RFC 959 server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFeatures {
    /// FEAT was answered with 211.
    pub feat_answered: bool,
    /// `SIZE`
    pub size: bool,
    /// The server says how long a listing is, in its 226 to clients that read remarks (longhaul's ` SIZE.LIST` line).
    pub listing_lengths: bool,
    /// `MDTM`
    pub mdtm: bool,
    /// `MFMT`
    pub mfmt: bool,
    /// `MLST` (and so MLSD)
    pub mlst: bool,
    /// `REST STREAM`
    pub rest_stream: bool,
    /// REST has no effect, as a transfer has shown, whatever the server announced.
    pub ignores_rest: bool,
    /// `EPSV` (many servers support it without announcing it)
    pub epsv: bool,
    /// `UTF8`
    pub utf8: bool,
    /// `PARALLEL`: MODE E with several streams (GFD.20). There is no feature line for MODE E itself.
    pub parallel: bool,
    /// `ERET`
    pub eret: bool,
    /// `ESTO`
    pub esto: bool,
    /// A stored file is seen when all of it is there, and replaces another one then (longhaul's ` STOR.WHOLE` line).
    pub stores_whole: bool,
    /// `SPAS`
    pub spas: bool,
    /// SPAS names the data nodes that have the current directory; others may not have it (longhaul's ` SPAS.CWD` line).
    pub nodes_by_directory: bool,
    /// `AUTH TLS` (or its old names)
    pub auth_tls: bool,
    /// `AUTH GSSAPI`
    pub auth_gssapi: bool,
    /// `PBSZ`
    pub pbsz: bool,
    /// `PROT`
    pub prot: bool,
    /// `DCAU`
    pub dcau: bool,
    /// `DCSC` with type P
    pub dcsc: bool,
    /// Logins with bearer tokens: `USER :bearer:` (longhaul's ` BEARER USER=:bearer:;` line).
    pub bearer: bool,
    /// `SBUF`
    pub sbuf: bool,
    /// `ABUF`
    pub abuf: bool,
    /// `PASV AllowDelayed`
    pub delayed_passive: bool,
    /// `MLSR`
    pub mlsr: bool,
    /// Algorithms of the `CKSM` (globus, longhaul) or `CKSUM` (dCache) line.
    pub checksum_algorithms: Vec<ChecksumAlgorithm>,
    /// The server computes a checksum while it stores, after `OPTS STOR Checksum=ALG;` (longhaul's
    /// ` CKSM.STOR` line). The CKSM that follows is then answered at once.
    pub store_checksum: bool,
    /// The server computes a checksum while it sends, after `OPTS RETR Checksum=ALG;` (longhaul's
    /// ` CKSM.RETR` line). The CKSM that follows is then answered at once.
    pub retrieve_checksum: bool,
    /// The non-standard `XCRC` (CRC-32), `XMD5`, `XSHA1`, `XSHA256` verbs of plain FTP servers.
    pub x_checksum_algorithms: Vec<ChecksumAlgorithm>,
    /// Values of `OPTS DRS` (longhaul's ` DRS auto;kernel;drs1;drs;drs2004;` line).
    pub buffer_sizings: Vec<BufferSizing>,
    /// The server adapts its number of data connections while it sends, within `Parallelism` (`Streams`
    /// in longhaul's ` TUNE Streams;Congestion;` line).
    pub tunes_streams: bool,
    /// The server supports `OPTS TUNE Congestion=NAME` (`Congestion` in that line).
    pub takes_congestion_control: bool,
    /// The server supports `SITE DATAPEER` (longhaul's ` DATAPEER` line).
    pub data_peer: bool,
    /// The server moves bundles of small files ([`crate::bundle`]; longhaul's ` BUNDLE` line).
    pub bundles: bool,
    /// The server takes compressed announcements of bundles (`BUNDLE` in longhaul's ` DEFLATE BUNDLE;MLSR;` line).
    pub packed_bundles: bool,
    /// The server compresses the text of MLSR after `OPTS MLSR Deflate=1;` (`MLSR` in that line).
    pub deflated_trees: bool,
    /// TCP port of the server's host where the network-advice service answers (longhaul's
    /// ` ENABLE PORT=2812;` line).
    pub enable_port: Option<u16>,
    /// All lines, trimmed.
    pub lines: Vec<String>,
}

impl ServerFeatures {
    /// Parses a FEAT reply. Any code but 211 gives the default.
    pub fn from_reply(reply: &Reply) -> Self {
        let mut features = Self::default();
        if reply.code != 211 {
            return features;
        }
        features.feat_answered = true;
        // The first and the last line hold text for people (RFC 2389 §3.2).
        let inner = reply.lines.len().saturating_sub(1);
        for line in reply.lines.iter().take(inner).skip(1) {
            let line = String::from_utf8_lossy(line).trim().to_owned();
            features.record_line(&line);
            features.lines.push(line);
        }
        features
    }

    /// Whether the server supports this buffer sizing in `OPTS DRS`.
    pub fn offers_buffer_sizing(&self, sizing: BufferSizing) -> bool {
        self.buffer_sizings.contains(&sizing)
    }

    fn record_line(&mut self, line: &str) {
        let (name, parameters) = line.split_once(' ').unwrap_or((line, ""));
        let parameters = parameters.to_ascii_uppercase();
        match name.to_ascii_uppercase().as_str() {
            "SIZE" => self.size = true,
            "SIZE.LIST" => self.listing_lengths = true,
            "MDTM" => self.mdtm = true,
            "MFMT" => self.mfmt = true,
            "MLST" | "MLSD" => self.mlst = true,
            "MLSR" => self.mlsr = true,
            "REST" if parameters.contains("STREAM") => self.rest_stream = true,
            "EPSV" => self.epsv = true,
            "UTF8" => self.utf8 = true,
            "PARALLEL" => self.parallel = true,
            "ERET" => self.eret = true,
            "ESTO" => self.esto = true,
            STORES_WHOLE => self.stores_whole = true,
            "SPAS" => self.spas = true,
            NODES_BY_DIRECTORY => self.nodes_by_directory = true,
            "AUTH" => {
                let mut names = parameters.split([';', ',', ' ']);
                self.auth_tls |= names.clone().any(is_name_of_tls);
                self.auth_gssapi |= names.any(|name| name == "GSSAPI");
            }
            "PBSZ" => self.pbsz = true,
            "PROT" => self.prot = true,
            "DCAU" => self.dcau = true,
            "DCSC" => self.dcsc = parameters.split([';', ',', ' ']).any(|kind| kind == "P"),
            "BEARER" => self.bearer = parameters == "USER=:BEARER:;",
            "SBUF" => self.sbuf = true,
            "ABUF" => self.abuf = true,
            "PASV" if parameters.contains("ALLOWDELAYED") => self.delayed_passive = true,
            // dCache announces CKSUM.
            "CKSM" | "CKSUM" => self.checksum_algorithms = parse_algorithms(&parameters),
            "CKSM.STOR" => self.store_checksum = true,
            "CKSM.RETR" => self.retrieve_checksum = true,
            "TUNE" => {
                let has = |name: &str| streams::tune_line_names(&parameters, name);
                self.tunes_streams = has(streams::STREAMS);
                self.takes_congestion_control = has(streams::CONGESTION);
            }
            "DATAPEER" => self.data_peer = true,
            BUNDLE_MODULE => self.bundles = true,
            "DEFLATE" => {
                let has = |name: &str| parameters.split(';').any(|word| word == name);
                self.packed_bundles = has(BUNDLE_MODULE);
                self.deflated_trees = has("MLSR");
            }
            "ENABLE" => self.enable_port = parse_port(&parameters),
            "DRS" => self.buffer_sizings = sizing::parse_names(&parameters),
            // XCRC and the other X verbs are not standardized, but widespread.
            "XCRC" => self.record_x_checksum(ChecksumAlgorithm::Crc32),
            "XMD5" => self.record_x_checksum(ChecksumAlgorithm::Md5),
            "XSHA" | "XSHA1" => self.record_x_checksum(ChecksumAlgorithm::Sha1),
            "XSHA256" => self.record_x_checksum(ChecksumAlgorithm::Sha256),
            "XSHA512" => self.record_x_checksum(ChecksumAlgorithm::Sha512),
            _ => {}
        }
    }

    fn record_x_checksum(&mut self, algorithm: ChecksumAlgorithm) {
        if !self.x_checksum_algorithms.contains(&algorithm) {
            self.x_checksum_algorithms.push(algorithm);
        }
    }
}

/// Parses `PORT=2812;`. Further items are ignored; port 0 is none.
fn parse_port(parameters: &str) -> Option<u16> {
    let mut items = parameters.split(';').map(str::trim);
    let port = items.find_map(|item| item.strip_prefix("PORT="))?;
    port.parse().ok().filter(|port| *port > 0)
}

/// Parses `MD5:10;ADLER32:10;` (the numbers are the server's preferences) or `md5,adler32`. Unknown and
/// repeated names are ignored.
fn parse_algorithms(parameters: &str) -> Vec<ChecksumAlgorithm> {
    let mut known = Vec::new();
    for item in parameters.split([';', ',', ' ']) {
        let name = item.split(':').next().unwrap_or(item);
        if let Some(algorithm) = ChecksumAlgorithm::parse(name)
            && !known.contains(&algorithm)
        {
            known.push(algorithm);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(lines: &[&str]) -> ServerFeatures {
        let inner = lines.iter().map(|l| l.as_bytes().to_vec()).collect();
        ServerFeatures::from_reply(&Reply::with_inner_lines(
            211,
            "Extensions supported",
            inner,
            "End.",
        ))
    }

    #[test]
    fn features_of_the_globus_server_are_parsed() {
        let f = features(&[
            "CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;",
            "DSI file-13.24",
            "MLSR",
            "DCAU",
            "PARALLEL",
            "SIZE",
            "MLST Type*;Size*;",
            "ERET",
            "ESTO",
            "SPAS",
            "REST STREAM",
            "PASV AllowDelayed;",
        ]);
        assert!(f.feat_answered && f.mlsr && f.dcau && f.parallel && f.size && f.mlst);
        assert!(f.eret && f.esto && f.spas && f.rest_stream && f.delayed_passive);
        assert!(!f.sbuf && !f.store_checksum && !f.utf8 && !f.epsv);
        assert_eq!(
            f.checksum_algorithms,
            [
                ChecksumAlgorithm::Md5,
                ChecksumAlgorithm::Adler32,
                ChecksumAlgorithm::Sha1,
                ChecksumAlgorithm::Sha256,
                ChecksumAlgorithm::Sha512
            ]
        );
        assert_eq!(f.lines.len(), 12);
        assert_eq!(f.lines[1], "DSI file-13.24");
    }

    #[test]
    fn the_port_of_the_advice_service_is_a_number_above_0() {
        let port = |line: &str| features(&[line]).enable_port;
        assert_eq!(port("ENABLE PORT=2812;"), Some(2812));
        assert_eq!(port("enable version=2;port=1;"), Some(1));
        for line in [
            "ENABLE",
            "ENABLE PORT=0;",
            "ENABLE PORT=65536;",
            "ENABLE 2812",
        ] {
            assert_eq!(port(line), None, "{line}");
        }
    }

    #[test]
    fn features_of_plain_ftp_servers_are_parsed() {
        let f = features(&[
            "UTF8", "EPSV", "PASV", "REST x", "XCRC", "XSHA", "XSHA1", "mfmt",
        ]);
        assert!(f.utf8 && f.epsv && f.mfmt);
        assert!(!f.delayed_passive && !f.rest_stream);
        assert_eq!(
            f.x_checksum_algorithms,
            [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Sha1]
        );
    }

    #[test]
    fn checksum_lists_of_dcache_are_parsed() {
        let f = features(&["CKSUM md5,ADLER32,whirlpool,MD5", "CKSM.STOR", "CKSM.RETR"]);
        assert_eq!(
            f.checksum_algorithms,
            [ChecksumAlgorithm::Md5, ChecksumAlgorithm::Adler32]
        );
        assert!(f.store_checksum && f.retrieve_checksum);
    }

    #[test]
    fn the_drs_line_lists_buffer_sizings() {
        let f = features(&["DRS auto;kernel;drs1;drs;drs2004;"]);
        assert_eq!(f.buffer_sizings, BufferSizing::ALL);
        let f = features(&["drs DRS;drs2;;Auto"]);
        assert_eq!(f.buffer_sizings, [BufferSizing::Drs, BufferSizing::Auto]);
        assert!(
            f.offers_buffer_sizing(BufferSizing::Drs)
                && !f.offers_buffer_sizing(BufferSizing::Drs1)
        );
        assert!(features(&["DRS", "XDRS auto"]).buffer_sizings.is_empty());
    }

    #[test]
    fn the_tune_line_lists_streams_and_congestion() {
        for (line, streams, congestion) in [
            ("TUNE Streams;Congestion;", true, true),
            ("tune streams", true, false),
            ("TUNE Congestion; Pace;", false, true),
            ("TUNE", false, false),
            ("TUNE StreamsAndMore;", false, false),
        ] {
            let f = features(&[line]);
            assert_eq!(
                (f.tunes_streams, f.takes_congestion_control),
                (streams, congestion),
                "{line}"
            );
        }
    }

    #[test]
    fn security_features_are_parsed() {
        let f = features(&[
            "AUTH TLS",
            "AUTH GSSAPI",
            "PBSZ",
            "PROT",
            "DCAU",
            "DCSC P,D",
            "BEARER USER=:bearer:;",
        ]);
        assert!(f.auth_tls && f.auth_gssapi && f.pbsz && f.prot && f.dcau && f.dcsc && f.bearer);
        // IIS, vsftpd and ProFTPD.
        for line in ["AUTH TLS;TLS-C;SSL;TLS-P;", "AUTH SSL", "auth tls"] {
            let f = features(&[line]);
            assert!(f.auth_tls && !f.auth_gssapi, "{line}");
        }
        for line in [
            "AUTH",
            "AUTH KERBEROS_V4",
            "XAUTH TLS",
            "DCSC D",
            "DCSC",
            "BEARER",
        ] {
            let f = features(&[line]);
            assert!(
                !f.auth_tls && !f.auth_gssapi && !f.dcsc && !f.bearer,
                "{line}"
            );
        }
    }

    #[test]
    fn a_refusal_or_an_empty_list_announces_nothing() {
        assert_eq!(
            ServerFeatures::from_reply(&Reply::new(500, "SIZE")),
            ServerFeatures::default()
        );
        let one_line = ServerFeatures::from_reply(&Reply::new(211, "SIZE"));
        assert!(one_line.feat_answered && !one_line.size);
    }
}
