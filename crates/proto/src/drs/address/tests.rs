use super::*;
use proptest::prelude::*;

const HEX: &str = "000102030405060708090a0b0c0d0eff";

fn address(at: &str) -> DrsAddress {
    DrsAddress {
        socket: at.parse().unwrap(),
        nonce: Nonce::parse(HEX).unwrap(),
    }
}

#[test]
fn an_address_is_the_argument_of_eprt_with_a_nonce() {
    let v4 = format!("|1|192.0.2.7|41000|{HEX}|");
    let v6 = format!("|2|2001:db8::7|41000|{HEX}|");
    assert_eq!(DrsAddress::parse(&v4), Ok(address("192.0.2.7:41000")));
    assert_eq!(DrsAddress::parse(&v6), Ok(address("[2001:db8::7]:41000")));
    assert_eq!(address("192.0.2.7:41000").format(), v4);
    assert_eq!(address("[2001:db8::7]:41000").format(), v6);
    let other = format!(" !1!192.0.2.7!41000!{HEX}! ");
    assert_eq!(DrsAddress::parse(&other), Ok(address("192.0.2.7:41000")));
}

#[test]
fn a_mapped_address_is_read_as_ipv4() {
    let mapped = format!("|2|::ffff:192.0.2.7|9|{HEX}|");
    assert_eq!(DrsAddress::parse(&mapped), Ok(address("192.0.2.7:9")));
    assert_eq!(
        address("[::ffff:192.0.2.7]:9").format(),
        format!("|1|192.0.2.7|9|{HEX}|")
    );
}

#[test]
fn malformed_addresses_are_refused() {
    let family = format!("|3|::1|9|{HEX}|");
    assert_eq!(
        DrsAddress::parse(&family),
        Err(AddressError::UnsupportedProtocol)
    );
    for text in [
        String::new(),
        "|".into(),
        "||||||".into(),
        "|1|192.0.2.7|9|".into(),
        format!("|1|192.0.2.7|0|{HEX}|"),
        format!("|1|192.0.2.7|65536|{HEX}|"),
        format!("|1||9|{HEX}|"),
        format!("|||9|{HEX}|"),
        format!("|1|192.0.2.7|9|{HEX}"),
        format!("|1|192.0.2.7|9|{HEX}||"),
        format!("|1|192.0.2.7|9||{HEX}|"),
        format!("|1|192.0.2.7|9|{}|", &HEX[2..]),
        format!("|2|192.0.2.7|9|{HEX}|"),
        // A delimiter that occurs in the nonce.
        format!("a1a192.0.2.7a9a{HEX}a"),
        format!("é1é192.0.2.7é9é{HEX}é"),
    ] {
        let parsed = DrsAddress::parse(&text);
        assert_eq!(parsed, Err(AddressError::Malformed), "{text:?}");
    }
}

#[test]
fn the_address_is_found_in_a_229_reply() {
    let text = format!("Entering DRS Passive Mode (|1|192.0.2.7|41000|{HEX}|).");
    assert_eq!(
        DrsAddress::find_in_229(&text),
        Ok(address("192.0.2.7:41000"))
    );
    for text in ["", "(", ")(", "Entering Extended Passive Mode (|||6446|)"] {
        let found = DrsAddress::find_in_229(text);
        assert_eq!(found, Err(AddressError::Malformed), "{text}");
    }
}

proptest! {
    #[test]
    fn formatted_addresses_are_parsed_back(ip: std::net::IpAddr, port in 1u16.., nonce: [u8; 16]) {
        let at = SocketAddr::new(ip.to_canonical(), port);
        let address = DrsAddress { socket: at, nonce: Nonce::new(nonce) };
        prop_assert_eq!(DrsAddress::parse(&address.format()), Ok(address));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*", fields in "[|!()a-f0-9:. ]{0,80}") {
        let _ = DrsAddress::find_in_229(&text);
        if let Ok(address) = DrsAddress::parse(&fields) {
            prop_assert_eq!(DrsAddress::parse(&address.format()), Ok(address));
        }
    }
}
