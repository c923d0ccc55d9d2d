use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_call_of_pythons_client_is_read() {
    let body = b"<?xml version='1.0'?>\n<methodCall>\n<methodName>EnableGetBufferSize</methodName>\n<params>\n<param>\n<value><string>data.example.org</string></value>\n</param>\n</params>\n</methodCall>\n";
    let call = read_call(body).unwrap();
    assert_eq!(call.method, "EnableGetBufferSize");
    assert_eq!(call.arguments, [json!("data.example.org")]);
}

#[test]
fn a_value_without_a_type_is_a_string_and_params_may_be_absent() {
    let body = b"<methodCall><methodName>a</methodName><params><param><value>x</value></param></params></methodCall>";
    assert_eq!(read_call(body).unwrap().arguments, [json!("x")]);
    let body = b"<methodCall><methodName>system.listMethods</methodName></methodCall>";
    assert_eq!(
        read_call(body).unwrap().arguments,
        [] as [serde_json::Value; 0]
    );
}

#[test]
fn numbers_beyond_32_bits_are_doubles() {
    let text = write_answer(&json!({"small": 5, "rate": 10_000_000_000_u64, "half": 0.5})).unwrap();
    assert!(text.contains("<double>10000000000</double>"), "{text}");
    assert!(
        text.contains("<i4>5</i4>") || text.contains("<int>5</int>"),
        "{text}"
    );
    let back = read_answer(text.as_bytes()).unwrap();
    assert_eq!(
        back,
        json!({"small": 5, "rate": 10_000_000_000_u64, "half": 0.5})
    );
}

#[test]
fn an_absent_member_is_left_out() {
    let text = write_answer(&json!({"a": null, "b": 1})).unwrap();
    assert_eq!(read_answer(text.as_bytes()).unwrap(), json!({"b": 1}));
}

#[test]
fn a_fault_is_an_error_with_its_code() {
    let text = write_fault(404, "nothing is known of <192.0.2.1>\u{1}").unwrap();
    let error = read_answer(text.as_bytes()).unwrap_err();
    let AnswerError::Fault { code, message } = error else {
        panic!("{error}")
    };
    assert_eq!(
        (code, message.as_str()),
        (404, "nothing is known of <192.0.2.1>\u{fffd}")
    );
}

#[test]
fn entity_bombs_are_refused_before_they_are_read() {
    let bomb = r#"<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><methodCall><methodName>&b;</methodName></methodCall>"#;
    assert!(matches!(
        read_call(bomb.as_bytes()),
        Err(XmlRpcError::DocumentType)
    ));
}

#[test]
fn deep_wide_and_long_bodies_are_refused() {
    let deep = format!(
        "<methodCall><methodName>a</methodName><params><param>{}1{}</param></params></methodCall>",
        "<value><array><data>".repeat(20_000 / 20),
        "</data></array></value>".repeat(20_000 / 20)
    );
    assert!(matches!(
        read_call(deep.as_bytes()),
        Err(XmlRpcError::TooComplex)
    ));
    let wide = format!(
        "<methodCall><methodName>a</methodName><params>{}</params></methodCall>",
        "<p/>".repeat(MAX_ELEMENTS + 1)
    );
    assert!(matches!(
        read_call(wide.as_bytes()),
        Err(XmlRpcError::TooComplex)
    ));
    assert!(matches!(
        read_call(&vec![b' '; MAX_BODY + 1]),
        Err(XmlRpcError::TooLong)
    ));
}

#[test]
fn junk_is_malformed_and_is_not_repeated_in_the_error() {
    for junk in [
        "",
        "hello",
        "<methodCall>",
        "<methodCall></methodCall>",
        "<methodResponse/>",
        "<methodCall><methodName>a</methodName><params><param><value><int>many</int></value></param></params></methodCall>",
    ] {
        let error = read_call(junk.as_bytes()).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }
    assert!(matches!(read_call(b"\xff"), Err(XmlRpcError::Encoding)));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        (0_u64..1 << 53).prop_map(Into::into),
        "[a-z <>&\"'é]{0,12}[a-z]".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map("[a-z]{1,8}", inner, 0..4)
                .prop_map(|members| { serde_json::Value::Object(members.into_iter().collect()) }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in any_json(), method in "[A-Za-z.]{1,20}") {
        let text = write_answer(&value).unwrap();
        prop_assert_eq!(read_answer(text.as_bytes()).unwrap(), value.clone());
        let call = Call { method, arguments: vec![value] };
        prop_assert_eq!(read_call(write_call(&call).unwrap().as_bytes()).unwrap(), call);
    }

    #[test]
    fn any_bytes_are_read_without_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_call(&body);
        let _ = read_answer(&body);
    }
}
