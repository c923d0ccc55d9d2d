//! Printers for files: every text parses back to the same value.

use std::time::Duration;

/// A time as a whole number of the largest possible unit up to milliseconds: `1500us`.
pub fn time(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let (factor, unit) = [(1_000_000, "ms"), (1_000, "us")]
        .into_iter()
        .find(|(factor, _)| nanoseconds.is_multiple_of(*factor))
        .unwrap_or((1, "ns"));
    format!("{}{unit}", nanoseconds / factor)
}

/// A probability. 1 is printed as `100%`, since the parser refuses a bare `1`.
pub fn probability(probability: f64) -> String {
    if probability < 1.0 {
        probability.to_string()
    } else {
        "100%".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_use_the_largest_unit_that_leaves_a_whole_number() {
        assert_eq!(time(Duration::ZERO), "0ms");
        assert_eq!(time(Duration::from_secs(90)), "90000ms");
        assert_eq!(time(Duration::from_micros(1500)), "1500us");
        assert_eq!(time(Duration::from_nanos(1)), "1ns");
        assert_eq!(probability(0.005), "0.005");
        assert_eq!(probability(1.0), "100%");
    }

    proptest! {
        #[test]
        fn printed_values_parse_back_to_the_same_value(ns in 0_u64..60_000_000_000, part in 0.0..=1.0_f64) {
            let exact = Duration::from_nanos(ns);
            prop_assert_eq!(crate::time(&time(exact)), Ok(exact));
            prop_assert_eq!(crate::probability(&probability(part)), Ok(part));
        }
    }
}
