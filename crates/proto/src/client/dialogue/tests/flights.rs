//! Commands that go out together, and those that wait for an answer.

use proptest::prelude::*;

use super::*;
use crate::client::{TelnetEscape, is_one_flight, takes_commands_ahead};
use crate::command::Opts;
use crate::security::SecurityToken;

/// The server's own words where `longhaul` announces more than the other tests need.
fn ahead() -> Dialogue {
    server(&[
        "CKSM CRC32C:1;",
        "CKSM.STOR",
        "PARALLEL",
        "SBUF",
        "ERET",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;",
    ])
    .ahead()
}

fn flown(dialogue: &Dialogue, need: &Need) -> Vec<Vec<String>> {
    let flights = dialogue.flights(need);
    flights.iter().map(|flight| lines(flight)).collect()
}

#[test]
fn only_the_greeting_of_a_longhaul_server_tells_that_commands_may_come_ahead() {
    let greets = |code, text: &str| takes_commands_ahead(&Reply::new(code, text));
    assert!(greets(220, "longhaul 0.1.0 GridFTP server ready."));
    assert!(greets(220, "longhaul 2"));
    for other in [
        "longhaul.example.org FTP server (vsFTPd 3.0.5) ready.",
        "longhaul FTP ready",
        "welcome to longhaul 0.1.0",
        "(vsFTPd 3.0.5)",
        "longhaul ",
        "",
    ] {
        assert!(!greets(220, other), "{other}");
    }
    assert!(!greets(120, "longhaul 0.1.0 is ready in 5 minutes"));
    assert!(!greets(421, "longhaul 0.1.0 is full"));
    let lines = ["Notice: private", "longhaul 0.1.0 GridFTP server ready."];
    let lines = lines.map(|line| line.as_bytes().to_vec()).into();
    assert!(takes_commands_ahead(&Reply { code: 220, lines }));
}

#[test]
fn a_get_over_several_streams_is_one_flight() {
    let need = get(&ahead(), Mode::Extended, None, &RangeSet::new());
    assert_eq!(
        flown(&ahead(), &need),
        [[
            "MODE E",
            "OPTS RETR Parallelism=4,4,4;",
            "<connect>",
            "RETR /f"
        ]]
    );
}

#[test]
fn a_get_over_one_stream_waits_for_the_address() {
    let need = get(&ahead(), Mode::Stream, None, &set("0-100"));
    assert_eq!(
        flown(&ahead(), &need),
        [vec!["<listen>", "REST 100"], vec!["RETR /f"]]
    );
}

/// A server that cuts its file before its settings are known to be right could destroy what a resumed
/// put builds upon.
#[test]
fn a_store_waits_for_every_setting_that_matters() {
    let need = put(Mode::Extended, Some(Restart::Ranges(set("0-7"))));
    assert_eq!(
        flown(&ahead(), &need),
        [
            vec![
                "MODE E",
                "OPTS STOR Checksum=CRC32C;",
                "<listen>",
                "ALLO 300",
                "REST 0-7"
            ],
            vec!["STOR /f"]
        ]
    );
}

#[test]
fn a_store_over_connections_that_are_open_waits_for_nothing() {
    let mut dialogue = ahead();
    let mut need = put(Mode::Extended, None);
    run(&mut dialogue, &need);
    need.reusable = true;
    assert_eq!(flown(&dialogue, &need), [["ALLO 300", "STOR /f"]]);
    need.restart = Some(Restart::Ranges(set("0-7")));
    assert_eq!(
        flown(&dialogue, &need),
        [vec!["ALLO 300", "REST 0-7"], vec!["STOR /f"]]
    );
}

#[test]
fn others_hear_one_command_at_a_time() {
    let need = get(&globus(), Mode::Extended, None, &set("0-7"));
    let flights = globus().flights(&need);
    assert!(flights.iter().all(|flight| flight.len() == 1));
    assert_eq!(flights.concat(), globus().plan(&need));
    let steps = globus().settings(&need);
    assert_eq!(globus().in_flights(steps.clone()).concat(), steps);
    assert_eq!(ahead().in_flights(Vec::new()), Vec::<Vec<Step>>::new());
}

/// Both are known of every server that announces them.
#[test]
fn the_drs_channel_is_agreed_upon_and_asked_for_together() {
    let careful = server(&["PARALLEL", "SBUF", "DRS auto;kernel;drs1;drs;"]);
    let mut need = get(&careful, Mode::Extended, None, &RangeSet::new());
    need.sizing = Some(Sizing::Drs);
    assert_eq!(
        flown(&careful, &need),
        [
            vec!["MODE E"],
            vec!["OPTS DRS drs", "<drs>"],
            vec!["OPTS RETR Parallelism=4,4,4;"],
            vec!["<connect>"],
            vec!["RETR /f"]
        ]
    );
    assert_eq!(
        flown(&ahead(), &need),
        [[
            "MODE E",
            "OPTS DRS drs",
            "OPTS RETR Parallelism=4,4,4;",
            "<drs>",
            "<connect>",
            "RETR /f"
        ]]
    );
}

#[test]
fn what_a_transfer_must_not_go_on_without() {
    let decides = |command, refusal| Step::Set(command, refusal).decides();
    let sizing = |sizing| Command::Opts(Opts::Sizing(sizing));
    assert!(decides(Command::Mode(Mode::Extended), Refusal::StreamMode));
    assert!(decides(
        Command::Rest(Restart::Offset(1)),
        Refusal::StartOver
    ));
    assert!(decides(Command::Type(Type::Image), Refusal::Fatal));
    assert!(decides(sizing(Sizing::Drs), Refusal::Warn("")));
    assert!(Step::Connect.decides() && Step::Listen.decides());
    assert!(!decides(sizing(Sizing::Kernel), Refusal::Harmless));
    assert!(!decides(Command::Allo(1), Refusal::Harmless));
    assert!(!decides(Command::Sbuf(1), Refusal::Warn("")));
    assert!(!Step::DrsListen.decides());
}

fn wishes() -> impl Strategy<Value = Need> {
    let sizing = prop::sample::select(vec![
        Sizing::Auto,
        Sizing::Kernel,
        Sizing::Drs1,
        Sizing::Drs,
    ]);
    (
        any::<(bool, bool, bool, bool)>(),
        prop::option::of(1..1_u64 << 30),
        sizing,
    )
        .prop_map(|((stores, extended, some, reusable), buffer, sizing)| {
            let mode = match extended {
                true => Mode::Extended,
                false => Mode::Stream,
            };
            let have = if some { set("0-9") } else { RangeSet::new() };
            let mut need = match stores {
                true => put(mode, some.then_some(Restart::Ranges(have))),
                false => get(&ahead(), mode, None, &have),
            };
            need.buffer = buffer;
            need.sizing = Some(sizing);
            need.reusable = reusable;
            need
        })
}

proptest! {
    /// Whatever was set before: nothing is lost or added, the transfer command is the last, and no store
    /// is begun before what decides about it is answered.
    #[test]
    fn flights_are_the_plan(before in prop::collection::vec(wishes(), 0..3), need in wishes()) {
        for mut dialogue in [ahead(), server(&["PARALLEL", "SBUF", "DRS auto;kernel;drs1;drs;"])] {
            for earlier in &before {
                run(&mut dialogue, earlier);
            }
            let flights = dialogue.flights(&need);
            let mut flown = flights.concat();
            let mut planned = dialogue.plan(&need);
            let last = flown.last().cloned();
            prop_assert_eq!(last, Some(Step::Transfer(need.verb.clone())));
            let order = |step: &Step| format!("{step:?}");
            flown.sort_by_key(order);
            planned.sort_by_key(order);
            prop_assert_eq!(flown, planned);
            for flight in &flights {
                prop_assert!(!flight.is_empty());
                if need.direction == Direction::Receive && flight.len() > 1 {
                    let begins = flight.iter().any(|step| matches!(step, Step::Transfer(_)));
                    prop_assert!(!begins || !flight.iter().any(Step::decides), "{:?}", flight);
                }
                let careful = dialogue.takes_ahead() || flight.len() == 1;
                prop_assert!(careful || flight[1..] == [Step::DrsListen], "{:?}", flight);
            }
        }
    }
}

#[test]
fn a_greeting_tells_what_becomes_of_a_byte_255() {
    for (text, telnet) in [
        (
            "longhaul 0.1.0 GridFTP server ready.",
            TelnetEscape::Doubled,
        ),
        (
            "ProFTPD Server (GridFTP Server) [127.0.0.1]",
            TelnetEscape::Doubled,
        ),
        (
            "h GridFTP Server 13.20 (gcc64, 1560187294-0) [Globus Toolkit 6.0] ready.",
            TelnetEscape::Dropped,
        ),
        ("(vsFTPd 3.0.5)", TelnetEscape::Ignored),
    ] {
        assert_eq!(TelnetEscape::of(&Reply::new(220, text)), telnet, "{text}");
    }
}

/// Somebody on the way could have put words of his own behind AUTH, and a password must not go out
/// before the exchange is over.
#[test]
fn a_flight_never_crosses_an_exchange() {
    let set = |command| Step::Set(command, Refusal::Fatal);
    let token = || SecurityToken::new(b"x".to_vec()).unwrap();
    let steps = vec![
        set(Command::Feat),
        set(Command::Auth("TLS".to_owned())),
        set(Command::User("ann".to_owned())),
        set(Command::Adat(token())),
        set(Command::Adat(token())),
        set(Command::Pwd),
        set(Command::Ccc),
    ];
    let flights = ahead().in_flights(steps);
    let shown: Vec<_> = flights.iter().map(|flight| lines(flight)).collect();
    assert_eq!(
        shown,
        [
            vec!["FEAT", "AUTH TLS"],
            vec!["USER ann", "ADAT eA=="],
            vec!["ADAT eA=="],
            vec!["PWD", "CCC"],
        ]
    );
    assert!(ahead().in_flights(Vec::new()).is_empty());
    let auth = || Command::Auth("TLS".to_owned());
    assert!(is_one_flight(&[]));
    assert!(is_one_flight(&[Command::Feat, auth()]));
    assert!(!is_one_flight(&[auth(), Command::Feat]));
    assert!(!is_one_flight(&[auth(), auth()]));
}
