//! Lines of the logs of data servers, in which users and clients choose names: a line is one transfer or none,
//! its numbers are possible, and only host names are looked up.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use advisor::log_reader::client_names::LogSurroundings;
use advisor::log_reader::format::TransferLogFormat;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let mut look_up = |name: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        assert!(!name.is_empty() && name.len() <= 253 && name.bytes().all(allowed));
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    };
    let mut surroundings = LogSurroundings {
        zone: &TimeZone::UTC,
        resolve: &mut look_up,
    };
    let mut any = false;
    for format in TransferLogFormat::ALL {
        let Some(entry) = format.parse(line, &mut surroundings) else {
            continue;
        };
        any = true;
        assert_eq!(entry.client, entry.client.to_canonical());
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        assert!(entry.seconds.is_none_or(positive), "{entry:?}");
        assert!(entry.min_rtt.is_none_or(positive), "{entry:?}");
        if let Some(measured) = entry.measurement() {
            for (quantity, value) in measured.values {
                assert!(quantity.allows(value), "{quantity:?} {value}: {entry:?}");
            }
        }
    }
    assert_eq!(TransferLogFormat::of_line(line).is_some(), any);
});
