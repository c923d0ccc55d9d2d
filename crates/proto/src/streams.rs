//! How many data connections a sender in extended block mode opens: `Parallelism=a,b,c` of OPTS RETR
//! (GFD.20 §4.2), and the FEAT line of a server that changes their number while it sends:
//!
//! ```text
//!  TUNE Streams;Congestion;
//! ```

/// Starting, minimum and maximum number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParallelismRange {
    /// To begin with, 1..=[`crate::eblock::MAX_STREAMS`].
    pub start: u32,
    /// Never fewer, at most `start`.
    pub min: u32,
    /// Never more, at least `start`. Above `least`, the sender may change the number while data moves.
    pub max: u32,
}

impl ParallelismRange {
    /// Exactly so many.
    pub const fn fixed(streams: u32) -> Self {
        Self {
            start: streams,
            min: streams,
            max: streams,
        }
    }

    /// Whether the sender may change the number.
    pub const fn is_adjustable(self) -> bool {
        self.max > self.min
    }

    /// With no number above `most`, nor below 1.
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

/// Of the TUNE line: within an open [`ParallelismRange`] the number follows the path.
pub(crate) const STREAMS: &str = "Streams";
/// Of the TUNE line: OPTS TUNE is taken.
pub(crate) const CONGESTION: &str = "Congestion";

/// The FEAT line; `congestion`: clients may ask for a congestion control.
pub(crate) fn feature_line(congestion: bool) -> String {
    let mut line = format!("TUNE {STREAMS};");
    if congestion {
        line.push_str(&format!("{CONGESTION};"));
    }
    line
}

/// Whether the list of a TUNE line has this name, in any case.
pub(crate) fn tune_line_names(list: &str, name: &str) -> bool {
    list.split(';')
        .any(|one| one.trim().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_range_stays_in_order_under_a_cap() {
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
    fn the_line_tells_what_is_offered() {
        assert_eq!(feature_line(true), "TUNE Streams;Congestion;");
        assert_eq!(feature_line(false), "TUNE Streams;");
    }
}
