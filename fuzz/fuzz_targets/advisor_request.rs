//! JSON that clients send to the advice service: a choice of tests is written and read back unchanged, its intervals
//! within their bounds.

#![no_main]

use std::time::Duration;

use advisor::chosen_tests::ChosenTests;
use enable::advice::Question;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fuzz_target!(|body: &[u8]| {
    if let Ok(question) = serde_json::from_slice::<Question>(body) {
        let written = serde_json::to_vec(&question).expect("a question can be written");
        let again: Question = serde_json::from_slice(&written).expect("and read");
        assert_eq!(again, question);
    }
    let Ok(choice) = serde_json::from_slice::<Map<String, Value>>(body) else {
        return;
    };
    match ChosenTests::from_json(&choice) {
        Ok(chosen) => {
            for (name, interval) in chosen.iter() {
                assert!(choice.contains_key(name));
                let in_bounds = |time| (Duration::from_secs(1)..=TEN_YEARS).contains(&time);
                assert!(interval.is_none_or(in_bounds), "{name}: {interval:?}");
            }
            assert_eq!(ChosenTests::from_json(&chosen.to_json()), Ok(chosen));
        }
        Err(wrong) => assert!(wrong.to_string().len() < 512, "the message is bounded"),
    }
});
