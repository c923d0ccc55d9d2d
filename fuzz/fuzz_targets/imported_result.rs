//! Results of iperf3 and perfSONAR to import: whatever they say, the measurements are possible numbers.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use advisor::import::{ImportOptions, iperf3, perfsonar};
use advisor::log_reader::client_names::LogSurroundings;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|document: &[u8]| {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return;
    };
    let named = ImportOptions {
        local: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        client: Some(IpAddr::from([192, 0, 2, 1])),
        at: Some(Timestamp::UNIX_EPOCH),
    };
    for options in [ImportOptions::default(), named] {
        let mut look_up = |_: &str| Some(IpAddr::from([198, 51, 100, 1]));
        let mut surroundings = LogSurroundings {
            zone: &TimeZone::UTC,
            resolve: &mut look_up,
        };
        let found = [
            iperf3::measurements(&document, &options),
            perfsonar::measurements(&document, &options, &mut surroundings),
        ];
        for measured in found.into_iter().flatten().flatten() {
            assert_eq!(measured.client, measured.client.to_canonical());
            for (quantity, value) in &measured.values {
                assert!(
                    quantity.allows(*value),
                    "{quantity:?} {value}: {measured:?}"
                );
            }
        }
    }
});
