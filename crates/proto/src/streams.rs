//! How many data connections a sender in extended block mode opens: `Parallelism=a,b,c` of OPTS RETR
//! (GFD.20 §4.2).

/// Starting, minimum and maximum number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamRange {
    /// To begin with, 1..=[`crate::eblock::MAX_STREAMS`].
    pub start: u32,
    /// Never fewer, at most `start`.
    pub least: u32,
    /// Never more, at least `start`. Above `least`, the sender may change the number while data moves.
    pub most: u32,
}

impl StreamRange {
    /// Exactly so many.
    pub const fn fixed(streams: u32) -> Self {
        Self {
            start: streams,
            least: streams,
            most: streams,
        }
    }

    /// Whether the sender may change the number.
    pub const fn is_open(self) -> bool {
        self.most > self.least
    }

    /// With no number above `most`, nor below 1.
    #[must_use]
    pub fn capped(self, most: u32) -> Self {
        let cap = |n: u32| n.clamp(1, most.max(1));
        Self {
            start: cap(self.start),
            least: cap(self.least),
            most: cap(self.most),
        }
    }
}
