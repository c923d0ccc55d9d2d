//! Parsing of transfer parameters: types, addresses, buffers, markers, parts.

use super::*;
use crate::ranges::{MAX_FILE_OFFSET, RangeSet};
use crate::sizing::BufferSizing;

#[test]
fn transfer_parameters_are_parsed() {
    for line in ["TYPE A", "type a n", "TYPE A  "] {
        assert_eq!(ok(line), Command::Type(DataType::Ascii), "{line}");
    }
    for line in ["TYPE I", "TYPE i  ", "TYPE L 8"] {
        assert_eq!(ok(line), Command::Type(DataType::Image), "{line}");
    }
    assert_eq!(ok("MODE e"), Command::Mode(TransferMode::Extended));
    assert_eq!(ok("STRU f"), Command::Stru('F'));
    assert_eq!(ok("ALLO 100 R 10"), Command::Allo(100));
    assert_eq!(ok("PBSZ 4294967295"), Command::Pbsz(u32::MAX));
    assert_eq!(
        ok("DCAU s /O=Grid/CN=a b"),
        Command::Dcau(DataChannelAuth::Subject("/O=Grid/CN=a b".into()))
    );
    assert_eq!(ok("PROT p"), Command::Prot(ProtectionLevel::Private));
    assert_eq!(
        ok("TREV perf 5"),
        Command::Trev(TriggerEvent::PerformanceMarker, 5)
    );
    all_not_offered(&[
        "TYPE E",
        "TYPE A T",
        "TYPE L 7",
        "TYPE L",
        "MODE B",
        "MODE X",
        "DCAU X",
        "PROT X",
        "TREV FOO 1",
    ]);
    all_syntax(&[
        "TYPE IMAGE",
        "MODE 1",
        "STRU FF",
        "ALLO x",
        "ALLO -1",
        "ALLO 100 R",
        "ALLO 100 R abc",
        "PBSZ 4294967296",
        "PBSZ +1",
        "DCAU S",
        "DCAU NONE",
        "PROT Clear",
        "TREV PERF -1",
        "SBUF 9223372036854775808",
        "ALLO 99999999999999999999999",
    ]);
}

#[test]
fn addresses_are_parsed() {
    let v4 = "127.0.0.1:256".parse().unwrap();
    let v6 = "[::1]:99".parse().unwrap();
    assert_eq!(ok("PORT 127,0,0,1,1,0"), Command::Port(v4));
    assert_eq!(ok("EPRT |2|::1|99|"), Command::Eprt(v6));
    assert_eq!(
        ok("SPOR 127,0,0,1,1,0  |2|::1|99|"),
        Command::Spor(StripeAddresses::new(vec![v4, v6]).unwrap())
    );
    assert_eq!(ok("EPSV"), Command::Epsv(EpsvArgument::Any));
    assert_eq!(
        ok("EPSV 2"),
        Command::Epsv(EpsvArgument::Family(AddressFamily::V6))
    );
    assert_eq!(ok("EPSV all"), Command::Epsv(EpsvArgument::All));
    assert_eq!(ok("SPAS"), Command::Spas(None));
    assert_eq!(ok("SPAS 1"), Command::Spas(Some(AddressFamily::V4)));
    all_syntax(&["PORT 1,2,3", "EPRT x", "SPOR x", "EPSV x", "SPAS x"]);
    for line in ["EPRT |3|::1|99|", "EPSV 3", "SPAS 3", "SPOR |7|::1|99|"] {
        assert_eq!(
            Command::parse(line.as_bytes()),
            Err(CommandError::Address(AddressError::UnsupportedProtocol)),
            "{line}"
        );
    }
}

#[test]
fn dpsv_dprt_and_opts_drs_are_parsed() {
    assert_eq!(ok("dpsv"), Command::Dpsv);
    let Command::Dprt(to) = ok(&format!("DPRT |1|127.0.0.1|256|{NONCE}|")) else {
        panic!("no DPRT");
    };
    assert_eq!(to.socket, "127.0.0.1:256".parse().unwrap());
    assert_eq!(
        Command::parse(format!("DPRT |3|::1|99|{NONCE}|").as_bytes()),
        Err(CommandError::Address(AddressError::UnsupportedProtocol))
    );
    all_syntax(&[
        "DPRT",
        "DPRT |1|127.0.0.1|256|",
        "DPRT |1|127.0.0.1|256||",
        "DPRT |1|127.0.0.1|256|xyz|",
        &format!("DPRT |1|127.0.0.1|256|{NONCE}0|"),
        &format!("DPRT 127,0,0,1,1,0 {NONCE}"),
    ]);
    for sizing in BufferSizing::ALL {
        let line = format!("opts drs {}", sizing.name().to_uppercase());
        assert_eq!(opts(&line), OptsCommand::BufferSizing(sizing), "{line}");
    }
    all_syntax(&[
        "OPTS DRS",
        "OPTS DRS drs2",
        "OPTS DRS drs x",
        "OPTS DRS =drs",
    ]);
}

#[test]
fn debug_output_and_errors_hide_the_nonce() {
    let line = format!("DPRT |1|127.0.0.1|256|{NONCE}|");
    let shown = format!("{:?}", ok(&line));
    assert!(!shown.contains(&NONCE[..8]), "{shown}");
    let spoiled = format!("DPRT |1|127.0.0.1|256|{NONCE}");
    let error = Command::parse(spoiled.as_bytes()).unwrap_err();
    assert!(!format!("{error:?}").contains(&NONCE[..8]), "{error:?}");
}

#[test]
fn restart_markers_are_parsed() {
    assert_eq!(ok("REST 100"), Command::Rest(RestartMarker::Offset(100)));
    assert_eq!(
        ok("REST 0-100,200-300"),
        Command::Rest(RestartMarker::Ranges(
            RangeSet::parse("0-100,200-300").unwrap()
        ))
    );
    assert_eq!(
        ok("REST 9223372036854775807"),
        Command::Rest(RestartMarker::Offset(MAX_FILE_OFFSET))
    );
    all_syntax(&[
        "REST 0-",
        "REST -5",
        "REST x",
        "REST 5-4",
        "REST 9223372036854775808",
        "REST 0-9223372036854775808",
        "REST 99999999999999999999999",
        "REST +1",
    ]);
}

#[test]
fn eret_and_esto_are_parsed() {
    let part = ExtendedRetrieve::Partial {
        offset: 5,
        length: 10,
    };
    assert_eq!(
        ok("ERET p 5 10 a b"),
        Command::Eret(part.clone(), b"a b".to_vec())
    );
    assert_eq!(
        ok("ERET Partial 5 10 x"),
        Command::Eret(part, b"x".to_vec())
    );
    assert_eq!(
        ok("ESTO a 5 x"),
        Command::Esto(ExtendedStore::Adjusted { offset: 5 }, b"x".to_vec())
    );
    all_not_offered(&["ERET X 1 2 a", "ESTO P 1 a", "ERET NAME=\"x\" a"]);
    all_syntax(&["ERET P -1 2 a", "ERET P 1 x a", "ESTO A x a"]);
}
