//! Tokens of GSI servers: whatever arrives, the client knows the genuine server or fails.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::gsi::{TestedEnd, run_exchange};

fuzz_target!(|input: &[u8]| run_exchange(TestedEnd::Initiator, input));
