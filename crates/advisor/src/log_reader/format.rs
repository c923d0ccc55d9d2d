//! The log formats, and which of them a line has.

use std::net::{IpAddr, Ipv4Addr};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::client_names::LogSurroundings;
use super::entry::LogEntry;
use super::{ftp_info, json, pure_ftpd, vsftpd, web, xferlog};

/// A log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferLogFormat {
    /// `longhaul serve --transfer-log`.
    Longhaul,
    /// `globus-gridftp-server -Z`.
    FtpInfo,
    /// xferlog of vsftpd, proftpd, pure-ftpd.
    Xferlog,
    /// vsftpd's own.
    Vsftpd,
    /// pure-ftpd's `stats` and `w3c`.
    PureFtpd,
    /// Common and combined log of web servers.
    Web,
}

impl TransferLogFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [
        Self::Longhaul,
        Self::FtpInfo,
        Self::Xferlog,
        Self::Vsftpd,
        Self::PureFtpd,
        Self::Web,
    ];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::FtpInfo => "ftp-info",
            Self::Xferlog => "xferlog",
            Self::Vsftpd => "vsftpd",
            Self::PureFtpd => "pure-ftpd",
            Self::Web => "web",
        }
    }

    /// Parses one line of this format without its end. `None`: it is no finished transfer of this format, or its
    /// client has no known address.
    pub fn parse(self, line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
        match self {
            Self::Longhaul => json::parse(line),
            Self::FtpInfo => ftp_info::parse(line),
            Self::Xferlog => xferlog::parse(line, surroundings),
            Self::Vsftpd => vsftpd::parse(line, surroundings),
            Self::PureFtpd => pure_ftpd::parse(line, surroundings),
            Self::Web => web::parse(line, surroundings),
        }
    }

    /// The format whose transfers look like this line. No name is looked up.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let mut any_name = |_: &str| Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut surroundings = LogSurroundings {
            zone: &TimeZone::UTC,
            resolve: &mut any_name,
        };
        Self::ALL
            .into_iter()
            .find(|format| format.parse(line, &mut surroundings).is_some())
    }
}
