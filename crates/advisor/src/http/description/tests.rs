use std::collections::BTreeSet;

use enable::advice::{Advice, QosAdvice, Question};
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

fn described(schema: &Value) -> BTreeSet<String> {
    let properties = schema["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

fn written<T: Serialize>(value: &T) -> BTreeSet<String> {
    json!(value).as_object().unwrap().keys().cloned().collect()
}

#[test]
fn objects_of_advice_are_described_as_they_are_written() {
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let schemas = &document["components"]["schemas"];
    let text = || Some("x".to_owned());
    let advice = Advice {
        client: String::new(),
        set_buffer_bytes: Some(1),
        bdp_bytes: Some(1),
        streams: Some(1),
        congestion_control: text(),
        pace_bps: Some(1),
        expected_bps: Some(1),
        p10_bps: Some(1),
        p90_bps: Some(1),
        rtt_seconds: Some(1.0),
        bandwidth_bps: Some(1),
        loss: Some(1.0),
        limited_by: text(),
        asymmetric: true,
        confidence: 1.0,
        age_seconds: Some(1.0),
        measured_by: text(),
        why: String::new(),
    };
    assert_eq!(described(&schemas["Advice"]), written(&advice));
    assert_eq!(
        described(&schemas["QosAdvice"]),
        written(&QosAdvice::default())
    );
    let question = Question {
        client: text(),
        bytes: Some(1),
        files: Some(1),
        max_receive_buffer: Some(1),
        max_set_buffer: Some(1),
        client_bps: Some(1),
        must_set_buffer: true,
        max_streams: Some(1),
    };
    let parameters = &document["paths"]["/api/v1/advice"]["get"]["parameters"];
    let parameters = parameters.as_array().unwrap().iter();
    let names = parameters.map(|one| one["name"].as_str().unwrap().to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), written(&question));
}

#[test]
fn every_reference_of_the_description_leads_to_a_schema() {
    let text = openapi();
    let document: Value = serde_json::from_str(&text).unwrap();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    assert!(text.contains("\"token\""));
}
