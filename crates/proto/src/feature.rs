//! Announcement of a server: the FEAT reply (RFC 2389 §3) as a client uses it.

use crate::checksum::Algorithm;
use crate::reply::Reply;
use crate::sizing::{self, Sizing};
use crate::streams;

/// A server's announced abilities. Default: a plain RFC 959 server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// FEAT was answered with 211.
    pub known: bool,
    /// `SIZE`
    pub size: bool,
    /// `MDTM`
    pub mdtm: bool,
    /// `MFMT`
    pub mfmt: bool,
    /// `MLST` (and so MLSD)
    pub mlst: bool,
    /// `REST STREAM`
    pub rest_stream: bool,
    /// `EPSV` (servers often have it unannounced)
    pub epsv: bool,
    /// `UTF8`
    pub utf8: bool,
    /// `PARALLEL`: extended block mode with several streams (GFD.20). Also taken as sign of MODE E.
    pub parallel: bool,
    /// `ERET`
    pub eret: bool,
    /// `ESTO`
    pub esto: bool,
    /// `SPAS`
    pub spas: bool,
    /// `DCAU`
    pub dcau: bool,
    /// `SBUF`
    pub sbuf: bool,
    /// `PASV AllowDelayed`
    pub delayed_passive: bool,
    /// `MLSR`
    pub mlsr: bool,
    /// Algorithms of the `CKSM` (globus, longhaul) or `CKSUM` (dCache) line.
    pub checksums: Vec<Algorithm>,
    /// Algorithms that the server sums while it stores when told `OPTS STOR Checksum=ALG;`
    /// (longhaul's ` CKSM.STOR` line), so that the CKSM that follows costs nothing.
    pub stor_checksum: bool,
    /// The non-standard `XCRC` (CRC-32), `XMD5`, `XSHA1`, `XSHA256` verbs of plain FTP servers.
    pub x_checksums: Vec<Algorithm>,
    /// Values that `OPTS DRS` takes (longhaul's ` DRS auto;kernel;drs1;drs;` line).
    pub drs: Vec<Sizing>,
    /// The server changes the number of its data connections while it sends, within `Parallelism`
    /// (`Streams` of longhaul's ` TUNE Streams;Congestion;` line).
    pub tune: bool,
    /// The server runs the congestion control that `OPTS TUNE` names (`Congestion` of that line).
    pub tune_congestion: bool,
    /// `SITE DATAPEER` names the one other host of data connections (longhaul's ` DATAPEER` line).
    pub data_peer: bool,
    /// All lines, trimmed.
    pub lines: Vec<String>,
}

impl Features {
    /// Reads a FEAT reply; anything but 211 gives the default.
    pub fn from_reply(reply: &Reply) -> Self {
        let mut features = Self::default();
        if reply.code != 211 {
            return features;
        }
        features.known = true;
        // The first and the last line are words for people.
        let inner = reply.lines.len().saturating_sub(1);
        for line in reply.lines.iter().take(inner).skip(1) {
            let line = String::from_utf8_lossy(line).trim().to_owned();
            features.note(&line);
            features.lines.push(line);
        }
        features
    }

    /// Whether `OPTS DRS` takes this policy.
    pub fn offers(&self, sizing: Sizing) -> bool {
        self.drs.contains(&sizing)
    }

    fn note(&mut self, line: &str) {
        let (name, parameters) = line.split_once(' ').unwrap_or((line, ""));
        let parameters = parameters.to_ascii_uppercase();
        match name.to_ascii_uppercase().as_str() {
            "SIZE" => self.size = true,
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
            "SPAS" => self.spas = true,
            "DCAU" => self.dcau = true,
            "SBUF" => self.sbuf = true,
            "PASV" if parameters.contains("ALLOWDELAYED") => self.delayed_passive = true,
            "CKSM" | "CKSUM" => self.checksums = algorithms(&parameters),
            "CKSM.STOR" => self.stor_checksum = true,
            "TUNE" => {
                let has = |name: &str| streams::names(&parameters, name);
                self.tune = has(streams::STREAMS);
                self.tune_congestion = has(streams::CONGESTION);
            }
            "DATAPEER" => self.data_peer = true,
            "DRS" => self.drs = sizing::parse_names(&parameters),
            "XCRC" => self.note_x(Algorithm::Crc32),
            "XMD5" => self.note_x(Algorithm::Md5),
            "XSHA" | "XSHA1" => self.note_x(Algorithm::Sha1),
            "XSHA256" => self.note_x(Algorithm::Sha256),
            "XSHA512" => self.note_x(Algorithm::Sha512),
            _ => {}
        }
    }

    fn note_x(&mut self, algorithm: Algorithm) {
        if !self.x_checksums.contains(&algorithm) {
            self.x_checksums.push(algorithm);
        }
    }
}

/// `MD5:10;ADLER32:10;` (the number is the server's preference) or `md5,adler32`. Names that are
/// not known are left out, and so is a name's second mention.
fn algorithms(parameters: &str) -> Vec<Algorithm> {
    let mut known = Vec::new();
    for item in parameters.split([';', ',', ' ']) {
        let name = item.split(':').next().unwrap_or(item);
        if let Some(algorithm) = Algorithm::parse(name)
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

    fn features(lines: &[&str]) -> Features {
        let inner = lines.iter().map(|l| l.as_bytes().to_vec()).collect();
        Features::from_reply(&Reply::data(211, "Extensions supported", inner, "End."))
    }

    #[test]
    fn reads_what_the_globus_server_says() {
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
        assert!(f.known && f.mlsr && f.dcau && f.parallel && f.size && f.mlst);
        assert!(f.eret && f.esto && f.spas && f.rest_stream && f.delayed_passive);
        assert!(!f.sbuf && !f.stor_checksum && !f.utf8 && !f.epsv);
        assert_eq!(
            f.checksums,
            [
                Algorithm::Md5,
                Algorithm::Adler32,
                Algorithm::Sha1,
                Algorithm::Sha256,
                Algorithm::Sha512
            ]
        );
        assert_eq!(f.lines.len(), 12);
        assert_eq!(f.lines[1], "DSI file-13.24");
    }

    #[test]
    fn reads_what_plain_servers_say() {
        let f = features(&[
            "UTF8", "EPSV", "PASV", "REST x", "XCRC", "XSHA", "XSHA1", "mfmt",
        ]);
        assert!(f.utf8 && f.epsv && f.mfmt);
        assert!(!f.delayed_passive && !f.rest_stream);
        assert_eq!(f.x_checksums, [Algorithm::Crc32, Algorithm::Sha1]);
    }

    #[test]
    fn reads_the_list_forms_of_checksums() {
        let f = features(&["CKSUM md5,ADLER32,whirlpool,MD5", "CKSM.STOR"]);
        assert_eq!(f.checksums, [Algorithm::Md5, Algorithm::Adler32]);
        assert!(f.stor_checksum);
    }

    #[test]
    fn reads_the_policies_of_right_sizing() {
        let f = features(&["DRS auto;kernel;drs1;drs;"]);
        assert_eq!(f.drs, Sizing::ALL);
        let f = features(&["drs DRS;drs2;;Auto"]);
        assert_eq!(f.drs, [Sizing::Drs, Sizing::Auto]);
        assert!(f.offers(Sizing::Drs) && !f.offers(Sizing::Drs1));
        assert!(features(&["DRS", "XDRS auto"]).drs.is_empty());
    }

    #[test]
    fn reads_what_a_sender_tunes() {
        for (line, streams, congestion) in [
            ("TUNE Streams;Congestion;", true, true),
            ("tune streams", true, false),
            ("TUNE Congestion; Pace;", false, true),
            ("TUNE", false, false),
            ("TUNE StreamsAndMore;", false, false),
        ] {
            let f = features(&[line]);
            assert_eq!((f.tune, f.tune_congestion), (streams, congestion), "{line}");
        }
    }

    #[test]
    fn a_refusal_or_an_empty_list_announces_nothing() {
        assert_eq!(
            Features::from_reply(&Reply::new(500, "SIZE")),
            Features::default()
        );
        let one_line = Features::from_reply(&Reply::new(211, "SIZE"));
        assert!(one_line.known && !one_line.size);
    }
}
