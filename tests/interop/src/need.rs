//! Needs of a test from the machine, and the consequence of a missing one.

use std::io::Write;

/// Set to `1` where nothing may be skipped, such as in `.ci/run`.
const REQUIRE: &str = "LONGHAUL_REQUIRE_PEERS";

/// The value, or `None` after saying on standard error that the test is skipped and why.
///
/// # Panics
/// With the reason, when `LONGHAUL_REQUIRE_PEERS=1`.
pub fn or_skip<T>(needed: Result<T, String>) -> Option<T> {
    match needed {
        Ok(value) => Some(value),
        Err(why) => {
            assert!(
                std::env::var_os(REQUIRE).is_none_or(|value| value != "1"),
                "{why} (nothing may be missing while {REQUIRE}=1)"
            );
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("test");
            // Past the capture of the test runner, which hides what a passing test prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
            None
        }
    }
}

/// Unwraps what a test needs, or returns from the test.
#[macro_export]
macro_rules! need {
    ($needed:expr) => {
        match $crate::need::or_skip($needed) {
            Some(value) => value,
            None => return,
        }
    };
}
