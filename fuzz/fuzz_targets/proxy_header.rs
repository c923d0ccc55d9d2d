//! The header of a load balancer: read byte by byte, so its end must not depend on what follows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use server::fuzzing::parse_proxy_header;

/// Longest header that the server reads, bytes.
const LONGEST: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let input = &input[..input.len().min(LONGEST)];
    let whole = parse_proxy_header(input).map_err(|error| error.to_string());
    for length in 0..input.len() {
        match parse_proxy_header(&input[..length]) {
            Ok(None) => {}
            Ok(Some(client)) => {
                assert_eq!(whole, Ok(Some(client)), "a header that is whole stays so");
                return;
            }
            Err(_) => {
                assert!(whole.is_err(), "what is no header does not become one");
                return;
            }
        }
    }
});
