//! Limiters of a transfer, by name.

use std::fmt;

/// Limiter of a transfer: where its time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// Reading the file at the sender.
    StoreRead,
    /// The sender's processor.
    SenderCpu,
    /// The sender's socket buffer.
    SendBuffer,
    /// TCP's congestion window, which never saw a loss: the path's queue or slow start.
    CongestionWindow,
    /// TCP's congestion window, cut by losses.
    Loss,
    /// The receiver's window.
    ReceiveWindow,
    /// The receiver's processor.
    ReceiverCpu,
    /// Writing the file at the receiver.
    StoreWrite,
    /// The limit that was asked for.
    RateLimit,
    /// The other end or the path, which cannot be told apart from here.
    ServerCap,
    /// Nothing was measured, or too little moved.
    Unknown,
}

impl Limiter {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::StoreRead,
        Self::SenderCpu,
        Self::SendBuffer,
        Self::CongestionWindow,
        Self::Loss,
        Self::ReceiveWindow,
        Self::ReceiverCpu,
        Self::StoreWrite,
        Self::RateLimit,
        Self::ServerCap,
        Self::Unknown,
    ];

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limiter| limiter.name() == name)
    }

    /// The name in summaries and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreRead => "store read",
            Self::SenderCpu => "sender CPU",
            Self::SendBuffer => "send buffer",
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

/// Which end measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This end sent.
    Sender,
    /// This end received.
    Receiver,
}
