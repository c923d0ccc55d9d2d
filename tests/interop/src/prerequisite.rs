//! Prerequisites of tests: a test without them is skipped, or fails if all are required.

use std::io::Write;

/// Environment variable, set to `1` if no test may be skipped, as in `.ci/run`.
const REQUIRE_VARIABLE: &str = "LONGHAUL_REQUIRE_PEERS";

/// Returns the value, or `None` after a message on standard error that the test is skipped and why.
///
/// # Panics
/// With the reason, when `LONGHAUL_REQUIRE_PEERS=1`.
pub fn or_skip<T>(needed: Result<T, String>) -> Option<T> {
    match needed {
        Ok(value) => Some(value),
        Err(why) => {
            assert!(
                std::env::var_os(REQUIRE_VARIABLE).is_none_or(|value| value != "1"),
                "{why} (nothing may be missing while {REQUIRE_VARIABLE}=1)"
            );
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("test");
            // Not eprintln!: the test runner captures and hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
            None
        }
    }
}

/// Unwraps a prerequisite of a test, or returns from the test.
#[macro_export]
macro_rules! require {
    ($needed:expr) => {
        match $crate::prerequisite::or_skip($needed) {
            Some(value) => value,
            None => return,
        }
    };
}
