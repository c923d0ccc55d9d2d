//! Limiters of a transfer, their names, and the verdict on a transfer over its whole time.

use std::fmt;

/// Limiter of a transfer: the resource that most of its time is spent waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// Reading the file at the sender, or the sending program.
    StoreRead,
    /// CPU of the sender.
    SenderCpu,
    /// Send buffer of the sender's socket.
    SendBuffer,
    /// The path is full: packets queue at its bottleneck, or pacing fills it without a queue. No setting makes it faster.
    Link,
    /// Congestion window without losses or a queue: it still grows.
    CongestionWindow,
    /// Congestion window, reduced by losses.
    Loss,
    /// Window that the receiver announces.
    ReceiveWindow,
    /// CPU of the receiver.
    ReceiverCpu,
    /// Writing the file at the receiver, or the receiving program.
    StoreWrite,
    /// Rate limit that the user set.
    RateLimit,
    /// The other end or the path: a receiver cannot tell which.
    ServerCap,
    /// Nothing was measured, or too little data moved.
    Unknown,
}

impl Limiter {
    /// All limiters.
    pub const ALL: [Self; 12] = [
        Self::StoreRead,
        Self::SenderCpu,
        Self::SendBuffer,
        Self::Link,
        Self::CongestionWindow,
        Self::Loss,
        Self::ReceiveWindow,
        Self::ReceiverCpu,
        Self::StoreWrite,
        Self::RateLimit,
        Self::ServerCap,
        Self::Unknown,
    ];

    /// Whether it is at an end of the path: a store, a processor, or a limit that somebody set. A rate that it
    /// holds back says nothing of the path.
    pub const fn is_at_an_end(self) -> bool {
        matches!(
            self,
            Self::StoreRead
                | Self::StoreWrite
                | Self::SenderCpu
                | Self::ReceiverCpu
                | Self::RateLimit
        )
    }

    /// The limiter with this [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limiter| limiter.name() == name)
    }

    /// The name in summaries and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreRead => "store read",
            Self::SenderCpu => "sender CPU",
            Self::SendBuffer => "send buffer",
            Self::Link => "link saturated",
            Self::CongestionWindow => "congestion window",
            Self::Loss => "congestion window (loss)",
            Self::ReceiveWindow => "receive window",
            Self::ReceiverCpu => "receiver CPU",
            Self::StoreWrite => "store write",
            Self::RateLimit => "rate limit",
            Self::ServerCap => "server cap",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Limiter of a transfer over its whole time, and a remedy.
#[derive(Debug, Clone, PartialEq)]
pub struct LimiterVerdict {
    /// Limiter for the longest part of the time.
    pub limiter: Limiter,
    /// Number of streams at the end.
    pub streams: u32,
    /// Congestion control at the end.
    pub congestion_control: String,
    /// Advice that would make the transfer faster: an imperative that follows "to change that: ". `None` if
    /// there is no known remedy, as on a full path.
    pub remedy: Option<String>,
}

/// End of a connection that measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This end sent.
    Sender,
    /// This end received.
    Receiver,
}
