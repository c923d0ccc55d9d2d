mod lifetimes;
mod properties;
mod security_exchange;
mod security_invariants;

use std::net::Ipv4Addr;

use super::{ExpectedInput, ServerSession, SessionConfig};
use crate::line::LineEvent;
use crate::path::VPath;
use crate::server::{
    AccountRights, AnnouncementMemory, DriverEvent, LoginFailure, LoginGrant, SessionAction,
};

fn config() -> SessionConfig {
    SessionConfig {
        congestion_controls: ["auto", "system", "bbr"].map(String::from).into(),
        max_login_failures: 3,
        clear_passwords: true,
        ..SessionConfig::new(Ipv4Addr::LOCALHOST.into())
    }
}

fn grant() -> LoginGrant {
    LoginGrant {
        user: "ann".to_owned(),
        home: VPath::root(),
        rights: AccountRights {
            write: true,
            third_party: false,
        },
        welcome_lines: Vec::new(),
    }
}

fn line(text: &str) -> LineEvent {
    LineEvent::Line(text.as_bytes().to_vec())
}

fn logged_in() -> ServerSession {
    let mut session = ServerSession::new(config());
    session.on_line(&line("USER ann"));
    session.on_line(&line("PASS x"));
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
    session.on_driver_event(DriverEvent::Login(Ok(grant())));
    session
}

/// Code of the only reply among the actions.
fn code(actions: &[SessionAction]) -> u16 {
    let codes: Vec<u16> = actions
        .iter()
        .filter_map(|action| match action {
            SessionAction::Reply(reply) => Some(reply.code),
            _ => None,
        })
        .collect();
    assert_eq!(codes.len(), 1, "{actions:?}");
    codes[0]
}

#[test]
fn abor_and_plain_stat_are_urgent() {
    let session = logged_in();
    for text in ["ABOR", "abor", "STAT", "stat ", "ABOR x"] {
        assert!(session.is_urgent(&line(text)), "{text}");
    }
    for text in ["", "STAT /x", "NOOP", "QUIT", "ABORT", "RETR ABOR", " "] {
        assert!(!session.is_urgent(&line(text)), "{text}");
    }
    assert!(!session.is_urgent(&LineEvent::TooLong));
}

#[test]
fn sbuf_is_urgent_only_during_transfers_of_drs1_sessions() {
    let after = |lines: &[&str]| {
        let mut session = logged_in();
        for text in lines {
            session.on_line(&line(text));
        }
        session
    };
    let size = line("SBUF 65536");
    let (port, drs1) = ("PORT 127,0,0,1,156,64", "OPTS DRS drs1");
    let running = after(&[port, drs1, "RETR /f"]);
    assert!(running.is_urgent(&size));
    for text in ["SBUF", "SBUF x", "SBUFX 1", "SITE SBUF 1"] {
        assert!(!running.is_urgent(&line(text)), "{text}");
    }
    for other in [
        after(&[port, "RETR /f"]),
        after(&[port, "OPTS DRS drs", "RETR /f"]),
        after(&[port, drs1, "OPTS DRS auto", "RETR /f"]),
        after(&[port, drs1]),
        after(&[drs1, "CKSM MD5 0 -1 /f"]),
        ServerSession::new(config()),
    ] {
        assert!(!other.is_urgent(&size), "{other:?}");
    }
}

#[test]
fn an_event_that_nothing_waits_for_changes_nothing() {
    let mut session = logged_in();
    assert!(
        session
            .on_driver_event(DriverEvent::Login(Ok(grant())))
            .is_empty()
    );
    let opened = DriverEvent::Opened {
        reused: false,
        unique_name: None,
    };
    assert!(session.on_driver_event(opened).is_empty());
    assert_eq!(session.expected_input(), ExpectedInput::Line);
    session.on_line(&line("SIZE /f"));
    assert!(
        session
            .on_driver_event(DriverEvent::Login(Ok(grant())))
            .is_empty()
    );
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
}

#[test]
fn a_line_that_the_driver_should_have_queued_is_answered_503() {
    let mut session = logged_in();
    session.on_line(&line("SIZE /f"));
    assert_eq!(code(&session.on_line(&line("NOOP"))), 503);
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
}

#[test]
fn input_after_close_is_ignored() {
    let mut session = logged_in();
    let actions = session.on_line(&line("QUIT"));
    assert_eq!(actions.last(), Some(&SessionAction::Close));
    assert!(session.on_line(&line("NOOP")).is_empty());
    assert!(
        session
            .on_driver_event(DriverEvent::Login(Ok(grant())))
            .is_empty()
    );
    assert_eq!(session.expected_input(), ExpectedInput::Line);
}

#[test]
fn a_flood_of_abors_closes_the_session() {
    let mut session = logged_in();
    session.on_line(&line("PORT 127,0,0,1,156,64"));
    session.on_line(&line("RETR /f"));
    let closes = (0..100).any(|_| {
        let actions = session.on_line(&line("ABOR"));
        actions.last() == Some(&SessionAction::Close)
    });
    assert!(closes);
}

#[test]
fn login_failures_are_counted_across_users() {
    let mut session = ServerSession::new(config());
    let mut fail = |user: &str| {
        session.on_line(&line(user));
        session.on_line(&line("PASS x"));
        session.on_driver_event(DriverEvent::Login(Err(LoginFailure::Refused(
            "no.".to_owned(),
        ))))
    };
    assert_eq!(code(&fail("USER a")), 530);
    assert_eq!(code(&fail("USER b")), 530);
    let last = fail("USER c");
    assert_eq!(code(&last), 421);
    assert_eq!(last.last(), Some(&SessionAction::Close));
}

#[test]
fn announced_bundles_of_all_sessions_share_a_memory() {
    let memory = AnnouncementMemory::new(1 << 20);
    let session = || {
        let mut session = ServerSession::new(SessionConfig {
            announcement_memory: memory.clone(),
            ..config()
        });
        session.on_line(&line("USER ann"));
        session.on_line(&line("PASS x"));
        session.on_driver_event(DriverEvent::Login(Ok(grant())));
        session
    };
    let announce = |session: &mut ServerSession, thousands: u32| {
        let files: String = (0..1000).map(|n| format!(" 1,,/{n:060}")).collect();
        let add = line(&format!("SITE BUNDLE ADD{files}"));
        let codes = (0..thousands).map(|_| code(&session.on_line(&add)));
        codes.collect::<Vec<_>>()
    };
    let mut first = session();
    assert_eq!(announce(&mut first, 6), [250; 6]);
    // Another session still announces a small bundle, but no large one.
    let mut second = session();
    let codes = announce(&mut second, 3);
    assert_eq!(codes, [250, 250, 450]);
    drop(first);
    assert_eq!(announce(&mut second, 5), [250; 5]);
}

/// A session that ssh carries, of an account whose home is /home/ann.
fn carried() -> ServerSession {
    carried_with(crate::server::CarriedRules::default())
}

fn carried_with(rules: crate::server::CarriedRules) -> ServerSession {
    let mechanism = crate::security::SecurityMechanism {
        name: "SSH".to_owned(),
        exchange: crate::security::ExchangeKind::Carried,
    };
    let config = SessionConfig {
        foreign_data_addresses: true,
        carried: rules,
        ..config()
    };
    let mut session = ServerSession::secured_from_start(config, mechanism, true);
    let asked = session.on_line(&line("USER anonymous"));
    assert!(matches!(
        &asked[..],
        [SessionAction::Authenticate { password: None, .. }]
    ));
    let mut grant = grant();
    grant.home = VPath::root().resolve(b"/home/ann").unwrap();
    grant.rights.third_party = true;
    session.on_driver_event(DriverEvent::Login(Ok(grant)));
    session
}

/// The request of DELE, or the reply that refuses it.
fn deletion(mut session: ServerSession, argument: &str) -> String {
    format!("{:?}", session.on_line(&line(&format!("DELE {argument}"))))
}

#[test]
fn the_home_of_a_user_is_for_carried_sessions_with_the_real_root() {
    let rules = crate::server::CarriedRules {
        home_of: Some(|user| {
            (user == b"bob").then(|| VPath::root().resolve(b"/homes/bob").unwrap())
        }),
        ..Default::default()
    };
    for (argument, path) in [
        ("/~bob/a", "/homes/bob/a"),
        ("/~bob", "/homes/bob"),
        ("~bob//a", "/homes/bob/a"),
        ("/~/a", "/home/ann/a"),
        ("/./~bob/a", "(/~bob/a"),
    ] {
        let request = deletion(carried_with(rules), argument);
        assert!(request.contains(path), "{argument}: {request}");
    }
    let nobody = deletion(carried_with(rules), "/~eve/a");
    assert!(nobody.contains("code: 550"), "{nobody}");
}

#[test]
fn clear_data_of_sshftp_needs_no_word_and_goes_to_hosts_that_the_client_names() {
    let rules = crate::server::CarriedRules {
        clear_data: true,
        ..Default::default()
    };
    let mut session = carried_with(rules);
    let actions = session.on_line(&line("PORT 192,0,2,77,16,1"));
    assert!(
        matches!(&actions[..], [SessionAction::ConnectTo { .. }, _]),
        "{actions:?}"
    );
    let actions = session.on_line(&line("PASV"));
    assert!(matches!(
        &actions[..],
        [.., SessionAction::Listen(request)] if request.any_host
    ));
    let mut without = carried();
    without.on_line(&line("DCAU N"));
    let refused = without.on_line(&line("PORT 192,0,2,77,16,1"));
    assert!(!matches!(
        &refused[..],
        [SessionAction::ConnectTo { .. }, _]
    ));
}

#[test]
fn the_home_of_an_ssh_url_is_that_of_the_login() {
    for (argument, path) in [
        ("/~/a", "/home/ann/a"),
        ("/~x/a", "/~x/a"),
        ("/b/~/a", "/b/~/a"),
    ] {
        let request = deletion(carried(), argument);
        assert!(request.contains(path), "{request}");
    }
    let elsewhere = deletion(logged_in(), "/~/a");
    assert!(elsewhere.contains("/~/a"), "{elsewhere}");
}

#[test]
fn only_data_with_a_certificate_of_an_ssh_session_may_be_with_any_host() {
    for (dcau, protection, any_host) in [
        ("DCAU A", "PROT P", true),
        ("DCAU A", "PROT C", true),
        ("DCAU N", "PROT C", false),
    ] {
        let mut session = carried();
        session.on_line(&line(dcau));
        session.on_line(&line(protection));
        let actions = session.on_line(&line("PASV"));
        let request = actions.iter().find_map(|action| match action {
            SessionAction::Listen(request) => Some(request.any_host),
            _ => None,
        });
        assert_eq!(request, Some(any_host), "{protection}");
    }
}
