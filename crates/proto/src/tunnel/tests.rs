use proptest::prelude::*;

use super::*;

fn login() -> ProxyLogin {
    ProxyLogin::new(b"ann", b"hush").unwrap()
}

fn target(host: &str) -> TunnelTarget {
    TunnelTarget::new(host, 2811).unwrap()
}

/// The end of a dialogue.
#[derive(Debug, PartialEq)]
struct DialogueEnd {
    sent: Vec<u8>,
    taken: usize,
    is_open: bool,
    error: Option<TunnelError>,
}

/// Runs a dialogue. `split` is the most bytes that arrive at a time.
fn run(mut dialogue: TunnelDialogue, replies: &[u8], split: usize) -> DialogueEnd {
    let mut sent = Vec::new();
    let mut taken = 0;
    let mut error = None;
    loop {
        sent.extend_from_slice(dialogue.output());
        dialogue.sent(dialogue.output().len());
        let rest = &replies[taken..];
        let count = dialogue.wanted().min(split).min(rest.len());
        if count == 0 || error.is_some() {
            break;
        }
        taken += count;
        error = dialogue.receive(&rest[..count]).err();
    }
    DialogueEnd {
        sent,
        taken,
        is_open: dialogue.is_open(),
        error,
    }
}

fn connect(replies: &str, login: Option<&ProxyLogin>) -> DialogueEnd {
    let target = target("host.example");
    let dialogue = TunnelDialogue::new(TunnelProtocol::HttpConnect, &target, login);
    run(dialogue, replies.as_bytes(), usize::MAX)
}

fn socks(replies: &[u8], login: Option<&ProxyLogin>) -> DialogueEnd {
    let target = target("host.example");
    let dialogue = TunnelDialogue::new(TunnelProtocol::Socks5, &target, login);
    run(dialogue, replies, usize::MAX)
}

#[test]
fn connect_leaves_the_bytes_of_the_server_unread() {
    for reply in [
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200\r\nVia: a\r\nProxy-agent: b\r\n\r\n",
        "HTTP/1.1 200 OK\nA: b\n\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let outcome = connect(&format!("{reply}220 ready\r\n\r\n"), None);
        assert_eq!(
            (outcome.taken, outcome.is_open),
            (reply.len(), true),
            "{reply}"
        );
    }
}

#[test]
fn connect_asks_for_the_name_and_logs_in() {
    let outcome = connect("", Some(&login()));
    let text = String::from_utf8(outcome.sent).unwrap();
    assert!(text.starts_with("CONNECT host.example:2811 HTTP/1.1\r\nHost: host.example:2811\r\n"));
    // Base64 of ann:hush.
    assert!(
        text.ends_with("\r\nProxy-Authorization: Basic YW5uOmh1c2g=\r\n\r\n"),
        "{text}"
    );
    assert!(!outcome.is_open);
    let target = TunnelTarget::new("2001:db8::1", 21).unwrap();
    let dialogue = TunnelDialogue::new(TunnelProtocol::HttpConnect, &target, None);
    let text = String::from_utf8(dialogue.output().to_vec()).unwrap();
    assert!(
        text.starts_with("CONNECT [2001:db8::1]:21 HTTP/1.1\r\n"),
        "{text}"
    );
    assert!(!text.contains("Authorization"));
}

#[test]
fn each_refusal_of_connect_has_its_error() {
    let status = |line: &str, login| {
        connect(&format!("HTTP/1.1 {line}\r\nX: y\r\n\r\n"), login)
            .error
            .unwrap()
    };
    let own = login();
    assert_eq!(status("407 Login", None), TunnelError::LoginRequired);
    assert_eq!(status("407 Login", Some(&own)), TunnelError::LoginRefused);
    assert_eq!(
        status("403 Filtered\x1b", None),
        TunnelError::Forbidden("403 Filtered\\x1b".to_owned())
    );
    assert_eq!(
        status("503 Service Unavailable", None),
        TunnelError::Unreachable("503 Service Unavailable".to_owned())
    );
    assert!(
        matches!(status("501", None), TunnelError::Unsupported(reason) if reason == "501 no reason given")
    );
    assert!(matches!(status("2000 OK", None), TunnelError::Invalid(_)));
    assert!(matches!(status("x", None), TunnelError::Invalid(_)));
    assert_eq!(
        connect("220 FTP ready\r\n", None).error,
        Some(TunnelError::NotHttp)
    );
    assert_eq!(connect("\x05\0", None).error, Some(TunnelError::NotHttp));
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(10_000));
    let outcome = connect(&endless, None);
    assert!(matches!(outcome.error, Some(TunnelError::Invalid(_))));
    assert!(outcome.taken < 17 << 10);
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
    assert!(matches!(
        connect(&endless, None).error,
        Some(TunnelError::Invalid(_))
    ));
}

#[test]
fn socks_logs_in_and_asks_for_the_name() {
    let request = b"\x05\x01\x00\x03\x0chost.example\x0a\xfb";
    let reply = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x0a\xfb";
    let clear = socks(&[&b"\x05\x00"[..], reply, b"220 ready"].concat(), None);
    assert_eq!(clear.sent, [&b"\x05\x01\x00"[..], request].concat());
    assert_eq!((clear.taken, clear.is_open), (2 + reply.len(), true));
    let own = login();
    let outcome = socks(&[&b"\x05\x02\x01\x00"[..], reply].concat(), Some(&own));
    let sent = [&b"\x05\x02\x00\x02\x01\x03ann\x04hush"[..], request].concat();
    assert_eq!((outcome.sent, outcome.is_open), (sent, true));
    // A proxy that wants no login gets none.
    let outcome = socks(&[&b"\x05\x00"[..], reply].concat(), Some(&own));
    assert!(outcome.is_open && !outcome.sent.windows(4).any(|part| part == b"hush"));
}

#[test]
fn socks_sends_addresses_as_such_and_reads_each_type() {
    let address = |host: &str| {
        let dialogue = TunnelDialogue::new(TunnelProtocol::Socks5, &target(host), None);
        run(dialogue, b"\x05\x00", 1).sent.split_off(3)
    };
    assert_eq!(
        address("192.0.2.1"),
        b"\x05\x01\x00\x01\xc0\x00\x02\x01\x0a\xfb"
    );
    let six = address("2001:db8::1");
    assert_eq!(
        (six.len(), &six[..6]),
        (4 + 16 + 2, &b"\x05\x01\x00\x04\x20\x01"[..])
    );
    assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    for bound in [
        &b"\x01\x00\x00\x00\x00"[..],
        b"\x03\x02ab",
        b"\x03\x00",
        &[&[4][..], &[0; 16]].concat(),
    ] {
        let reply = [b"\x05\x00\x00", bound, b"\x00\x00"].concat();
        let outcome = socks(&[&b"\x05\x00"[..], &reply, b"220"].concat(), None);
        assert_eq!((outcome.taken, outcome.is_open), (2 + reply.len(), true));
    }
}

#[test]
fn each_refusal_of_socks_has_its_error() {
    let own = login();
    let error = |replies: &[u8], login| socks(replies, login).error.unwrap();
    assert_eq!(error(b"\x05\xff", None), TunnelError::LoginRequired);
    assert!(matches!(
        error(b"\x05\xff", Some(&own)),
        TunnelError::Unsupported(_)
    ));
    assert!(matches!(error(b"\x05\x02", None), TunnelError::Invalid(_)));
    assert_eq!(
        error(b"\x05\x02\x01\x01", Some(&own)),
        TunnelError::LoginRefused
    );
    assert_eq!(
        error(b"H", None),
        TunnelError::NotSocks5 { speaks_http: true }
    );
    assert_eq!(
        error(b"\x04\x5a", None),
        TunnelError::NotSocks5 { speaks_http: false }
    );
    // The address is not waited for.
    assert!(matches!(
        error(b"\x05\x00\x05\x02", None),
        TunnelError::Forbidden(_)
    ));
    assert_eq!(error(b"\x05\x00\x05\x05", None), TunnelError::ServerRefused);
    assert!(matches!(
        error(b"\x05\x00\x05\x04\x00\x01", None),
        TunnelError::Unreachable(_)
    ));
    assert!(matches!(
        error(b"\x05\x00\x05\x08", None),
        TunnelError::Unsupported(_)
    ));
    assert!(matches!(
        error(b"\x05\x00\x05\x00\x00\x09", None),
        TunnelError::Invalid(_)
    ));
}

#[test]
fn no_line_break_reaches_a_request() {
    for name in [
        "",
        "a b",
        "a\r\nX: y",
        "a\0",
        "a:1",
        "a/b",
        "[a",
        "n\u{e4}me",
        &"a".repeat(256),
    ] {
        assert!(TunnelTarget::new(name, 1).is_err(), "{name:?}");
    }
    assert!(TunnelTarget::new(&"a".repeat(255), 1).is_ok());
    assert!(
        ProxyLogin::new(&[b'a'; 256], b"").is_err() && ProxyLogin::new(b"a", &[b'a'; 256]).is_err()
    );
    assert!(ProxyLogin::new(b"", b"a").is_err() && ProxyLogin::new(b"a:b", b"c").is_err());
    // Base64 carries any other byte, and a SOCKS field has its length before it.
    assert!(ProxyLogin::new(b"a\r\n", b"\r\n").is_ok());
}

#[test]
fn a_login_is_never_shown() {
    let own = login();
    let dialogue = TunnelDialogue::new(TunnelProtocol::Socks5, &target("h"), Some(&own));
    for text in [format!("{own:?}"), format!("{dialogue:?}")] {
        assert!(!text.contains("hush"), "{text}");
    }
    assert_eq!(own.user(), "ann");
}

proptest! {
    #[test]
    fn any_reply_is_bounded_and_the_same_in_any_split(
        begin in prop::sample::select(vec![&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 ", b"\x05\x00", b"\x05\x02\x01\x00\x05\x00\x00"]),
        rest in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'0'), 0..6_u8,
        ], 0..400),
        split in 1..9_usize,
        socks in any::<bool>(),
        has_login in any::<bool>(),
    ) {
        let protocol = match socks {
            true => TunnelProtocol::Socks5,
            false => TunnelProtocol::HttpConnect,
        };
        let own = login();
        let login = has_login.then_some(&own);
        let dialogue = || TunnelDialogue::new(protocol, &target("host.example"), login);
        let replies = [begin, &rest].concat();
        let whole = run(dialogue(), &replies, usize::MAX);
        let parts = run(dialogue(), &replies, split);
        prop_assert_eq!(whole.is_open, parts.is_open);
        prop_assert_eq!(whole.error.is_some(), parts.error.is_some());
        prop_assert_eq!(&whole.sent, &parts.sent);
        // After an error the connection is closed, and where it was noticed does not matter.
        if whole.error.is_none() {
            prop_assert_eq!(whole.taken, parts.taken);
            prop_assert!(whole.is_open || whole.taken == replies.len());
        }
    }
}

#[test]
fn a_carried_connection_is_open_behind_its_line() {
    let mut dialogue = TunnelDialogue::carried(50_000);
    assert_eq!(dialogue.output(), b"longhaul data 1 50000\r\n");
    dialogue.sent(usize::MAX);
    for byte in b"motd\nlonghaul data 1\r\n" {
        assert!(!dialogue.is_open() && dialogue.wanted() == 1);
        dialogue.receive(&[*byte]).unwrap();
    }
    assert!(dialogue.is_open() && dialogue.wanted() == 0);
}
