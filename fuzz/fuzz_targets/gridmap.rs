//! Gridmaps and signing policies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use openssl::nid::Nid;
use openssl::x509::X509Name;
use security::fuzzing::may_sign;
use security::gridmap::Gridmap;
use security::x509::DistinguishedName;

const AUTHORITY: &str = "/C=CH/O=Grid/CN=Test CA";

fuzz_target!(|input: &[u8]| {
    let parsed = Gridmap::parse(input, "map");
    if let Err(error) = &parsed {
        assert!(error.to_string().starts_with("map:"), "{error}");
    }
    // Lines behind a gridmap add subjects and take none away.
    if let Ok(map) = parsed {
        let longer = [input, b"\n# end\n\"/CN=last\" last\n"].concat();
        let longer = Gridmap::parse(&longer, "map").expect("valid lines");
        let last = DistinguishedName::from_text("/CN=last");
        let expected = map.accounts(&last).iter().map(String::as_str);
        let found: Vec<&str> = longer.accounts(&last).iter().map(String::as_str).collect();
        assert!(found.contains(&"last"));
        assert!(expected.into_iter().all(|account| found.contains(&account)));
    }
    let text = String::from_utf8_lossy(input);
    if let Ok(granted) = may_sign(&text, AUTHORITY, "/O=Grid/CN=Ada") {
        // A comment changes nothing.
        let commented = format!("# comment\n{text}");
        assert_eq!(
            may_sign(&commented, AUTHORITY, "/O=Grid/CN=Ada"),
            Ok(granted)
        );
        assert_eq!(
            may_sign("", AUTHORITY, "/O=Grid/CN=Ada"),
            Ok(false),
            "an authority without a policy signs nothing"
        );
    }
    check_subject(&text);
});

/// Every subject of a certificate can be written.
fn check_subject(common_name: &str) {
    let Ok(mut subject) = X509Name::builder() else {
        return;
    };
    // OpenSSL refuses empty and long names.
    if subject
        .append_entry_by_nid(Nid::COMMONNAME, common_name)
        .is_err()
    {
        return;
    }
    let subject = DistinguishedName::of(&subject.build());
    let escaped = subject.as_str().replace('\\', "\\\\").replace('"', "\\\"");
    let map = Gridmap::parse(format!("\"{escaped}\" x").as_bytes(), "map").expect("a valid line");
    assert_eq!(map.accounts(&subject), ["x"]);
}
