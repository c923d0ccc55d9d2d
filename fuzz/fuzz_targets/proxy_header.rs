//! The header of a load balancer: read byte by byte, so its end must not depend on what follows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use server::fuzzing::parse_proxy_header;

/// Longest header that the server reads, bytes.
const LONGEST: usize = 4096;
/// Longest header of version 1, bytes.
const MAX_TEXT: usize = 107;
/// Begin of a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fuzz_target!(|input: &[u8]| {
    let input = &input[..input.len().min(LONGEST)];
    let whole = parse_proxy_header(input).map_err(|error| error.to_string());
    for length in 0..input.len() {
        match parse_proxy_header(&input[..length]) {
            Ok(None) => {
                let may_be_long = input.starts_with(SIGNATURE);
                assert!(length < MAX_TEXT || may_be_long, "a text is bounded");
            }
            Ok(Some(client)) => {
                assert_eq!(whole, Ok(Some(client)), "a header that is whole stays so");
                return;
            }
            // The server reads no further.
            Err(_) => return,
        }
    }
});
