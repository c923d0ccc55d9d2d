//! Sizing of socket buffers during a transfer: the values of `OPTS DRS` and `--buffer`, and the two forms
//! of a size on the control channel (Gardner, Feng and Fisk 2003, §4.2).
//!
//! ```text
//! C->S SBUF 262144                   the client receives; no reply during a transfer
//! S->C 126 Buffer Size (262144)      the server receives
//! ```

use std::time::Duration;

use units::message_rate::MessageRateLimiter;

use crate::reply::Reply;

/// Largest buffer size accepted from a peer, bytes. The kernel doubles the value given to setsockopt(2)
/// (socket(7)) and keeps the result in an `int`, so larger values would have no effect. Its own limits are
/// usually lower.
pub const MAX_BUFFER: u64 = 1 << 30;

/// Smallest buffer size accepted from a peer, bytes; smaller ones are raised to it. Less would not hold
/// a single segment.
pub const MIN_BUFFER: u64 = 4 << 10;

/// Start of the text of a 126, before the size.
const BUFFER_SIZE_TEXT: &str = "Buffer Size";

/// Method that sizes the socket buffers of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BufferSizing {
    /// longhaul monitors the kernel's autotuning and sets larger buffers where they limit the transfer.
    #[default]
    Auto,
    /// The kernel's autotuning alone, or a pinned size.
    Kernel,
    /// The first drsFTP (Gardner, Feng and Fisk 2003, §4): sizes are sent on the control channel.
    Drs1,
    /// The re-architected drsFTP (Engelhart, Gardner and Feng 2004, §3 and §4): sizes are sent on a
    /// separate channel between the two ends of the data channel. The estimates are longhaul's.
    Drs,
    /// The same with the receiver's estimates as published: the two ends speak as with `Drs`.
    Drs2004,
}

impl BufferSizing {
    /// All methods.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Kernel,
        Self::Drs1,
        Self::Drs,
        Self::Drs2004,
    ];

    /// The name in `OPTS DRS`, in the FEAT line ` DRS auto;kernel;drs1;drs;drs2004;` and in `--buffer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kernel => "kernel",
            Self::Drs1 => "drs1",
            Self::Drs => "drs",
            Self::Drs2004 => "drs2004",
        }
    }

    /// Parses a name; the case is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|sizing| sizing.name().eq_ignore_ascii_case(text))
    }

    /// Whether both ends must support the method and agree on it (drs1, drs and drs2004). Each connection
    /// then starts with a small buffer, which grows with the sizes that the ends exchange.
    pub const fn needs_peer_support(self) -> bool {
        matches!(self, Self::Drs1) || self.uses_drs_channel()
    }

    /// Whether the ends exchange sizes on a DRS channel (drs and drs2004).
    pub const fn uses_drs_channel(self) -> bool {
        matches!(self, Self::Drs | Self::Drs2004)
    }
}

/// Socket buffers of data connections: pinned sizes, or the method that sizes them during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Pinned send buffer (SO_SNDBUF) of each socket, bytes; `None` if sized by
    /// [`SocketBuffers::sizing`].
    pub send: Option<u64>,
    /// Pinned receive buffer (SO_RCVBUF), likewise.
    pub receive: Option<u64>,
    /// Method for buffers that are not pinned.
    pub sizing: BufferSizing,
}

impl SocketBuffers {
    /// Buffers without pinned size.
    pub const fn sized_by(sizing: BufferSizing) -> Self {
        Self {
            send: None,
            receive: None,
            sizing,
        }
    }

    /// Buffers pinned to `bytes` in both directions.
    pub const fn pinned(bytes: u64) -> Self {
        Self {
            send: Some(bytes),
            receive: Some(bytes),
            sizing: BufferSizing::Kernel,
        }
    }

    /// The larger of the pinned sizes, bytes; `None` if none is pinned.
    pub fn pinned_bytes(self) -> Option<u64> {
        self.send.max(self.receive)
    }

    /// The same buffers, with this method for those that are not pinned.
    #[must_use]
    pub fn with_sizing(self, sizing: BufferSizing) -> Self {
        match (self.send, self.receive) {
            // Nothing is left to size.
            (Some(_), Some(_)) => self,
            _ => Self { sizing, ..self },
        }
    }

    /// The same buffers, with the kernel's autotuning alone for those that are not pinned.
    #[must_use]
    pub const fn with_kernel_sizing(self) -> Self {
        Self {
            sizing: BufferSizing::Kernel,
            ..self
        }
    }

    /// `auto`, `kernel`, `drs1`, `drs`, `drs2004`, or `pinned`.
    pub fn name(self) -> &'static str {
        match self.pinned_bytes() {
            // A size that is pinned in one direction only still counts as pinned.
            Some(_) => "pinned",
            None => self.sizing.name(),
        }
    }
}

impl Default for SocketBuffers {
    /// No pinned size, and [`BufferSizing::Auto`].
    fn default() -> Self {
        Self::sized_by(BufferSizing::Auto)
    }
}

/// The FEAT line `DRS auto;kernel;drs1;drs;drs2004;`, which lists the values of `OPTS DRS`.
pub fn feature_line() -> String {
    let names: Vec<&str> = BufferSizing::ALL
        .iter()
        .map(|sizing| sizing.name())
        .collect();
    format!("DRS {};", names.join(";"))
}

/// Parses the list of a DRS feature line, after its first word. Unknown and repeated names are ignored.
pub fn parse_names(text: &str) -> Vec<BufferSizing> {
    let mut known = Vec::new();
    for name in text.split(';') {
        if let Some(sizing) = BufferSizing::parse(name.trim())
            && !known.contains(&sizing)
        {
            known.push(sizing);
        }
    }
    known
}

/// A size announced by a receiver, clamped to [`MIN_BUFFER`]..=[`MAX_BUFFER`]; `None` for 0, which is no
/// size.
pub fn clamp_announced_size(bytes: u64) -> Option<u64> {
    (bytes > 0).then(|| bytes.clamp(MIN_BUFFER, MAX_BUFFER))
}

/// Rate limit of the sizes accepted from a peer during a transfer: 200 per second after a burst of 1 024.
/// An honest receiver announces far fewer.
pub const fn announced_size_limiter() -> MessageRateLimiter {
    MessageRateLimiter::new(Duration::from_millis(5), 1024)
}

/// `126 Buffer Size (n)`: the receiving server has set its buffers to `bytes` (2003 paper §4.2).
pub fn buffer_size_reply(bytes: u64) -> Reply {
    Reply::new(126, format!("{BUFFER_SIZE_TEXT} ({bytes})"))
}

/// Parses the size in a 126 reply, bytes, clamped by [`clamp_announced_size`]. `None` for any other reply
/// and for 0.
pub fn parse_buffer_size_reply(reply: &Reply) -> Option<u64> {
    if reply.code != 126 {
        return None;
    }
    let text = reply.text();
    let (head, size) = text.trim().split_at_checked(BUFFER_SIZE_TEXT.len())?;
    if !head.eq_ignore_ascii_case(BUFFER_SIZE_TEXT) {
        return None;
    }
    let digits = size.trim().strip_prefix('(')?.strip_suffix(')')?;
    // `FromStr` alone would accept a leading `+`.
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    clamp_announced_size(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_without_regard_to_case() {
        for sizing in BufferSizing::ALL {
            assert_eq!(BufferSizing::parse(sizing.name()), Some(sizing));
            assert_eq!(
                BufferSizing::parse(&sizing.name().to_ascii_uppercase()),
                Some(sizing)
            );
        }
        for text in ["", "drs2", "drs ", "auto;"] {
            assert_eq!(BufferSizing::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_feature_line_is_parsed_and_unknown_names_are_ignored() {
        assert_eq!(feature_line(), "DRS auto;kernel;drs1;drs;drs2004;");
        let names = feature_line();
        let (_, names) = names.split_once(' ').unwrap();
        assert_eq!(parse_names(names), BufferSizing::ALL);
        assert_eq!(
            parse_names("DRS9; Auto;x;;AUTO;drs"),
            [BufferSizing::Auto, BufferSizing::Drs]
        );
        assert!(parse_names("").is_empty());
    }

    #[test]
    fn a_buffer_size_reply_has_the_form_of_the_paper() {
        let reply = buffer_size_reply(262_144);
        assert_eq!(
            (reply.code, reply.text().as_str()),
            (126, "Buffer Size (262144)")
        );
        assert_eq!(parse_buffer_size_reply(&reply), Some(262_144));
    }

    #[test]
    fn sizes_in_126_replies_are_clamped_and_malformed_ones_refused() {
        let of = |text: &str| parse_buffer_size_reply(&Reply::new(126, text));
        assert_eq!(of("buffer size ( 7 )"), None);
        assert_eq!(of(" buffer size (8192) "), Some(8192));
        assert_eq!(of("Buffer Size (7)"), Some(MIN_BUFFER));
        assert_eq!(of("Buffer Size (18446744073709551615)"), Some(MAX_BUFFER));
        for text in [
            "",
            "Buffer Size",
            "Buffer Size ()",
            "Buffer Size (0)",
            "Buffer Size (+7)",
            "Buffer Size (-7)",
            "Buffer Size (18446744073709551616)",
            "Buffer Size (7",
            "Buffer Size 7",
            "Buffer Sizé (7)",
            "(7)",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(
            parse_buffer_size_reply(&Reply::new(226, "Buffer Size (7)")),
            None
        );
    }

    #[test]
    fn another_sizing_applies_only_to_unpinned_buffers() {
        let pinned = SocketBuffers::pinned(1 << 20);
        let sized = SocketBuffers::sized_by(BufferSizing::Auto);
        let receive = Some(1 << 20);
        for buffers in [sized, SocketBuffers { receive, ..sized }] {
            let agreed = buffers.with_sizing(BufferSizing::Drs);
            let sizing = BufferSizing::Drs;
            assert_eq!(agreed, SocketBuffers { sizing, ..buffers });
        }
        assert_eq!(pinned.with_sizing(BufferSizing::Drs), pinned);
    }
}
