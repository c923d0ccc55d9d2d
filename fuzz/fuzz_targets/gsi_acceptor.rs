//! Tokens of GSI clients: whatever arrives, the server knows the genuine client or fails.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::gsi::{TestedEnd, run_exchange};

fuzz_target!(|input: &[u8]| run_exchange(TestedEnd::Acceptor, input));
