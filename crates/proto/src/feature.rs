//! What a server announces: the FEAT reply (RFC 2389 §3) as a client uses it.

use crate::checksum::Algorithm;
use crate::reply::Reply;

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
    /// All lines, trimmed.
    pub lines: Vec<String>,
}

impl Features {
    /// Reads a FEAT reply; anything but 211 gives the default.
    pub fn from_reply(reply: &Reply) -> Self {
        let _ = reply;
        todo!()
    }
}
