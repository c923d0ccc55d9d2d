//! How socket buffers are sized while data moves: what `OPTS DRS` and `--buffer` name, and the two
//! forms in which a size travels on the control channel (2003 paper §4.2).
//!
//! ```text
//! C->S SBUF 262144                   the client receives; no reply during a transfer
//! S->C 126 Buffer Size (262144)      the server receives
//! ```

use std::time::Duration;

use crate::message_rate::MessageRateLimiter;
use crate::reply::Reply;

/// Largest buffer that is asked of the kernel on a peer's word, bytes; its own limit is usually
/// lower. What setsockopt(2) can express when the kernel doubles it.
pub const MAX_BUFFER: u64 = 1 << 30;

/// Smallest size that a receiver can tell its sender, bytes; less is read as this much. Below it
/// not even one segment would fit.
pub const MIN_BUFFER: u64 = 4 << 10;

/// First words of a 126, before the size.
const HEAD: &str = "Buffer Size";

/// Who decides about a data connection's socket buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BufferSizing {
    /// longhaul watches the kernel's autotuning and takes over where that is too small.
    #[default]
    Auto,
    /// The kernel alone (or a size that was pinned).
    Kernel,
    /// The first drsFTP (Gardner, Feng and Fisk 2003, §4): sizes travel on the control channel.
    Drs1,
    /// The re-architected drsFTP (Engelhart, Gardner and Feng 2004, §3 and §4): a channel of its
    /// own between the two ends of the data channel.
    Drs,
}

impl BufferSizing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Kernel, Self::Drs1, Self::Drs];

    /// The name in `OPTS DRS`, in the FEAT line ` DRS auto;kernel;drs1;drs;` and in `--buffer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kernel => "kernel",
            Self::Drs1 => "drs1",
            Self::Drs => "drs",
        }
    }

    /// Reads a name, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|sizing| sizing.name().eq_ignore_ascii_case(text))
    }

    /// A scheme of the papers: the two ends have to work together, so that both must have agreed to
    /// it, and each connection begins with a small buffer that grows with what they tell each other.
    pub const fn needs_peer_support(self) -> bool {
        matches!(self, Self::Drs1 | Self::Drs)
    }
}

/// Socket buffers of data connections: a size from first to last, or who sizes them while data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Send buffer (SO_SNDBUF) to pin on each socket, bytes; `None`: sized by [`SocketBuffers::sizing`].
    pub send: Option<u64>,
    /// Receive buffer (SO_RCVBUF), likewise.
    pub receive: Option<u64>,
    /// Who sizes buffers that are not pinned.
    pub sizing: BufferSizing,
}

impl SocketBuffers {
    /// Sized while data moves.
    pub const fn sized_by(sizing: BufferSizing) -> Self {
        Self {
            send: None,
            receive: None,
            sizing,
        }
    }

    /// `bytes` in both directions, from first to last.
    pub const fn pinned(bytes: u64) -> Self {
        Self {
            send: Some(bytes),
            receive: Some(bytes),
            sizing: BufferSizing::Kernel,
        }
    }

    /// The larger of the pinned sizes, bytes; `None` where none is pinned.
    pub fn pinned_bytes(self) -> Option<u64> {
        self.send.max(self.receive)
    }

    /// The same, with `sizing` for what is not pinned.
    #[must_use]
    pub fn with_sizing(self, sizing: BufferSizing) -> Self {
        match (self.send, self.receive) {
            (Some(_), Some(_)) => self,
            _ => Self { sizing, ..self },
        }
    }

    /// The same, with the kernel alone sizing what is not pinned.
    #[must_use]
    pub const fn with_kernel_sizing(self) -> Self {
        Self {
            sizing: BufferSizing::Kernel,
            ..self
        }
    }

    /// `auto`, `kernel`, `drs1`, `drs`, or `pinned`.
    pub fn name(self) -> &'static str {
        match self.pinned_bytes() {
            Some(_) => "pinned",
            None => self.sizing.name(),
        }
    }
}

impl Default for SocketBuffers {
    /// [`BufferSizing::Auto`].
    fn default() -> Self {
        Self::sized_by(BufferSizing::Auto)
    }
}

/// The FEAT line `DRS auto;kernel;drs1;drs;`: what `OPTS DRS` takes.
pub fn feature_line() -> String {
    let names: Vec<&str> = BufferSizing::ALL
        .iter()
        .map(|sizing| sizing.name())
        .collect();
    format!("DRS {};", names.join(";"))
}

/// The policies named in a FEAT line, after its first word; names that are not known are left out,
/// and so is a name's second mention.
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

/// A size that a receiver tells its sender, brought to [`MIN_BUFFER`]..=[`MAX_BUFFER`]; `None` for
/// 0, which is no size.
pub fn clamp_announced_size(bytes: u64) -> Option<u64> {
    (bytes > 0).then(|| bytes.clamp(MIN_BUFFER, MAX_BUFFER))
}

/// How many sizes a peer is listened to in a transfer: 200 a second after the first 1 024, far more
/// than a receiver has to tell.
pub const fn announced_size_limiter() -> MessageRateLimiter {
    MessageRateLimiter::new(Duration::from_millis(5), 1024)
}

/// `126 Buffer BufferSize (n)`: the server, receiving, has buffers of `bytes` now (2003 paper §4.2).
pub fn buffer_size_reply(bytes: u64) -> Reply {
    Reply::new(126, format!("{HEAD} ({bytes})"))
}

/// The size in a 126 reply, bytes, as [`clamp_announced_size`] gives it; `None` for anything else and for 0.
pub fn parse_buffer_size_reply(reply: &Reply) -> Option<u64> {
    if reply.code != 126 {
        return None;
    }
    let text = reply.text();
    let (head, size) = text.trim().split_at_checked(HEAD.len())?;
    if !head.eq_ignore_ascii_case(HEAD) {
        return None;
    }
    let digits = size.trim().strip_prefix('(')?.strip_suffix(')')?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    clamp_announced_size(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_case_and_are_read_back() {
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
    fn the_feature_line_is_read_back_and_may_grow() {
        assert_eq!(feature_line(), "DRS auto;kernel;drs1;drs;");
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
    fn a_buffer_reply_is_written_as_the_paper_has_it() {
        let reply = buffer_size_reply(262_144);
        assert_eq!(
            (reply.code, reply.text().as_str()),
            (126, "Buffer Size (262144)")
        );
        assert_eq!(parse_buffer_size_reply(&reply), Some(262_144));
    }

    #[test]
    fn a_buffer_reply_is_bounded_and_nonsense_is_none() {
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
    fn what_is_not_pinned_is_sized_as_agreed() {
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
