//! The bytes of a failed attempt that are kept.
//!
//! A lost connection says nothing against the bytes that arrived: TCP delivered them, and the next
//! attempt goes on after them. A refusal (a 4xx or 5xx after the data), a 226 beside data that did not
//! end, and an end without 226 do: there a count of bytes proves nothing. Such bytes are kept only
//! where a checksum of the whole will judge them, and are sent again where none will.

use proto::ranges::RangeSet;

use crate::transfer::Confirmation;

/// The verdict on the bytes of a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// These ranges are safe.
    Safe(RangeSet),
    /// These ranges are there, but only a checksum can call them safe.
    Disputed(RangeSet),
    /// Only these ranges are safe: the attempt's unconfirmed bytes are sent again.
    Dropped(RangeSet),
}

/// Weighs a failed attempt: `before` was safe when it began, `arrived` came in it, `size` is that of
/// the whole; `judged`: a checksum of the whole will be compared at the end.
pub(super) fn after_failure(
    before: &RangeSet,
    arrived: &RangeSet,
    said: &Confirmation,
    size: Option<u64>,
    judged: bool,
) -> Kept {
    let mut all = before.clone();
    all.extend(arrived);
    // Nothing is left to be sent that a 226 could confirm.
    let whole = size.is_some_and(|size| all.contains(0, size));
    if !said.refused() && !whole {
        return Kept::Safe(all);
    }
    if judged {
        return Kept::Disputed(all);
    }
    let mut safe = before.clone();
    safe.extend(&said.confirmed());
    Kept::Dropped(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    fn kept(arrived: &str, said: &Confirmation, judged: bool) -> Kept {
        after_failure(&ranges("0-10"), &ranges(arrived), said, Some(100), judged)
    }

    #[test]
    fn a_lost_connection_keeps_what_arrived() {
        let said = Confirmation::default();
        for judged in [false, true] {
            assert_eq!(kept("10-60", &said, judged), Kept::Safe(ranges("0-60")));
        }
    }

    #[test]
    fn a_refusal_takes_back_what_nothing_will_judge() {
        let said = Confirmation::default();
        said.refuse();
        let sums = kept("10-60", &said, true);
        assert_eq!(sums, Kept::Disputed(ranges("0-60")));
        assert_eq!(kept("10-60", &said, false), Kept::Dropped(ranges("0-10")));
        assert_eq!(kept("10-100", &said, false), Kept::Dropped(ranges("0-10")));
    }

    #[test]
    fn all_bytes_without_a_226_are_not_a_file() {
        let said = Confirmation::default();
        assert_eq!(kept("10-100", &said, false), Kept::Dropped(ranges("0-10")));
        let sums = kept("10-100", &said, true);
        assert_eq!(sums, Kept::Disputed(ranges("0-100")));
    }

    #[test]
    fn chunks_that_ended_with_226_survive_the_refusal_of_another() {
        let said = Confirmation::default();
        said.confirm(10, 40);
        said.refuse();
        let left = kept("10-60", &said, false);
        assert_eq!(left, Kept::Dropped(ranges("0-40")));
    }
}
