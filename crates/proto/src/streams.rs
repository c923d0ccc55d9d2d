//! Number of data connections of a sender in MODE E: `Parallelism=a,b,c` of OPTS RETR (GFD.20 §4.2), and
//! the FEAT line of a server that adapts the number while it sends:
//!
//! ```text
//!  TUNE Streams;Congestion;
//! ```

/// Starting, minimum and maximum number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParallelismRange {
    /// Starting number, 1..=[`crate::eblock::MAX_STREAMS`].
    pub start: u32,
    /// Minimum, at most `start`.
    pub min: u32,
    /// Maximum, at least `start`. If it exceeds the minimum, the sender may change the number during the
    /// transfer.
    pub max: u32,
}

impl ParallelismRange {
    /// Exactly `streams` connections.
    pub const fn fixed(streams: u32) -> Self {
        Self {
            start: streams,
            min: streams,
            max: streams,
        }
    }

    /// Whether the sender may change the number during the transfer.
    pub const fn is_adjustable(self) -> bool {
        self.max > self.min
    }

    /// The same range with all numbers limited to 1..=`most`.
    #[must_use]
    pub fn capped(self, most: u32) -> Self {
        let cap = |n: u32| n.clamp(1, most.max(1));
        Self {
            start: cap(self.start),
            min: cap(self.min),
            max: cap(self.max),
        }
    }
}

/// Item of the TUNE line: the server adapts the number of streams within an adjustable
/// [`ParallelismRange`].
pub(crate) const STREAMS: &str = "Streams";
/// Item of the TUNE line: the server supports OPTS TUNE.
pub(crate) const CONGESTION: &str = "Congestion";

/// The FEAT line; `congestion` is set if clients may select a congestion control.
pub(crate) fn feature_line(congestion: bool) -> String {
    let mut line = format!("TUNE {STREAMS};");
    if congestion {
        line.push_str(&format!("{CONGESTION};"));
    }
    line
}

/// Whether the list of a TUNE line contains this name; the case is ignored.
pub(crate) fn tune_line_names(list: &str, name: &str) -> bool {
    list.split(';')
        .any(|one| one.trim().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_range_stays_ordered() {
        let range = ParallelismRange {
            start: 8,
            min: 2,
            max: 64,
        };
        assert!(range.is_adjustable());
        let capped = |start, least, most| ParallelismRange {
            start,
            min: least,
            max: most,
        };
        assert_eq!(range.capped(16), capped(8, 2, 16));
        assert_eq!(range.capped(4), capped(4, 2, 4));
        assert_eq!(range.capped(0), ParallelismRange::fixed(1));
        assert!(!ParallelismRange::fixed(7).capped(100).is_adjustable());
    }

    #[test]
    fn the_tune_line_lists_the_offered_features() {
        assert_eq!(feature_line(true), "TUNE Streams;Congestion;");
        assert_eq!(feature_line(false), "TUNE Streams;");
    }
}
