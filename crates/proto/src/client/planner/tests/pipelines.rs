//! Commands that go out together, and those that wait for an answer.

use proptest::prelude::*;

use super::*;
use crate::client::{IacHandling, may_pipeline, supports_pipelining};
use crate::command::OptsCommand;
use crate::security::SecurityToken;

/// The server's own words where `longhaul` announces more than the other tests need.
fn ahead() -> CommandPlanner {
    server(&[
        "CKSM CRC32C:1;",
        "CKSM.STOR",
        "PARALLEL",
        "SBUF",
        "ERET",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;",
    ])
    .with_pipelining()
}

fn flown(dialogue: &CommandPlanner, need: &TransferRequirements) -> Vec<Vec<String>> {
    let flights = dialogue.pipelined_plan(need);
    flights.iter().map(|flight| lines(flight)).collect()
}

#[test]
fn only_the_greeting_of_a_longhaul_server_tells_that_commands_may_come_ahead() {
    let greets = |code, text: &str| supports_pipelining(&Reply::new(code, text));
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
    assert!(supports_pipelining(&Reply { code: 220, lines }));
}

#[test]
fn a_get_over_several_streams_is_one_flight() {
    let need = get(&ahead(), TransferMode::Extended, None, &RangeSet::new());
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
    let need = get(&ahead(), TransferMode::Stream, None, &set("0-100"));
    assert_eq!(
        flown(&ahead(), &need),
        [vec!["<listen>", "REST 100"], vec!["RETR /f"]]
    );
}

/// A server that cuts its file before its settings are known to be right could destroy what a resumed
/// put builds upon.
#[test]
fn a_store_waits_for_every_setting_that_matters() {
    let need = put(
        TransferMode::Extended,
        Some(RestartMarker::Ranges(set("0-7"))),
    );
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
    let mut need = put(TransferMode::Extended, None);
    run(&mut dialogue, &need);
    need.connections_reusable = true;
    assert_eq!(flown(&dialogue, &need), [["ALLO 300", "STOR /f"]]);
    need.restart = Some(RestartMarker::Ranges(set("0-7")));
    assert_eq!(
        flown(&dialogue, &need),
        [vec!["ALLO 300", "REST 0-7"], vec!["STOR /f"]]
    );
}

#[test]
fn others_hear_one_command_at_a_time() {
    let need = get(&globus(), TransferMode::Extended, None, &set("0-7"));
    let flights = globus().pipelined_plan(&need);
    assert!(flights.iter().all(|flight| flight.len() == 1));
    assert_eq!(flights.concat(), globus().plan(&need));
    let steps = globus().setting_steps(&need);
    assert_eq!(globus().group_for_pipelining(steps.clone()).concat(), steps);
    assert_eq!(
        ahead().group_for_pipelining(Vec::new()),
        Vec::<Vec<PlanStep>>::new()
    );
}

/// Both are known of every server that announces them.
#[test]
fn the_drs_channel_is_agreed_upon_and_asked_for_together() {
    let careful = server(&["PARALLEL", "SBUF", "DRS auto;kernel;drs1;drs;"]);
    let mut need = get(&careful, TransferMode::Extended, None, &RangeSet::new());
    need.buffer_sizing = Some(BufferSizing::Drs);
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
    let decides = |command, refusal| PlanStep::Set(command, refusal).must_succeed();
    let sizing = |sizing| Command::Opts(OptsCommand::BufferSizing(sizing));
    assert!(decides(
        Command::Mode(TransferMode::Extended),
        RefusalEffect::FallBackToStreamMode
    ));
    assert!(decides(
        Command::Rest(RestartMarker::Offset(1)),
        RefusalEffect::RestartFromZero
    ));
    assert!(decides(
        Command::Type(DataType::Image),
        RefusalEffect::Fatal
    ));
    assert!(decides(sizing(BufferSizing::Drs), RefusalEffect::Warn("")));
    assert!(PlanStep::Connect.must_succeed() && PlanStep::Listen.must_succeed());
    assert!(!decides(
        sizing(BufferSizing::Kernel),
        RefusalEffect::Ignore
    ));
    assert!(!decides(Command::Allo(1), RefusalEffect::Ignore));
    assert!(!decides(Command::Sbuf(1), RefusalEffect::Warn("")));
    assert!(!PlanStep::DrsListen.must_succeed());
}

fn wishes() -> impl Strategy<Value = TransferRequirements> {
    let sizing = prop::sample::select(vec![
        BufferSizing::Auto,
        BufferSizing::Kernel,
        BufferSizing::Drs1,
        BufferSizing::Drs,
    ]);
    (
        any::<(bool, bool, bool, bool)>(),
        prop::option::of(1..1_u64 << 30),
        sizing,
    )
        .prop_map(|((stores, extended, some, reusable), buffer, sizing)| {
            let mode = match extended {
                true => TransferMode::Extended,
                false => TransferMode::Stream,
            };
            let have = if some { set("0-9") } else { RangeSet::new() };
            let mut need = match stores {
                true => put(mode, some.then_some(RestartMarker::Ranges(have))),
                false => get(&ahead(), mode, None, &have),
            };
            need.buffer = buffer;
            need.buffer_sizing = Some(sizing);
            need.connections_reusable = reusable;
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
            let flights = dialogue.pipelined_plan(&need);
            let mut flown = flights.concat();
            let mut planned = dialogue.plan(&need);
            let last = flown.last().cloned();
            prop_assert_eq!(last, Some(PlanStep::Transfer(need.command.clone())));
            let order = |step: &PlanStep| format!("{step:?}");
            flown.sort_by_key(order);
            planned.sort_by_key(order);
            prop_assert_eq!(flown, planned);
            for flight in &flights {
                prop_assert!(!flight.is_empty());
                if need.direction == TransferDirection::Receive && flight.len() > 1 {
                    let begins = flight.iter().any(|step| matches!(step, PlanStep::Transfer(_)));
                    prop_assert!(!begins || !flight.iter().any(PlanStep::must_succeed), "{:?}", flight);
                }
                let careful = dialogue.supports_pipelining() || flight.len() == 1;
                prop_assert!(careful || flight[1..] == [PlanStep::DrsListen], "{:?}", flight);
            }
        }
    }
}

#[test]
fn a_greeting_tells_what_becomes_of_a_byte_255() {
    for (text, telnet) in [
        ("longhaul 0.1.0 GridFTP server ready.", IacHandling::Doubled),
        (
            "ProFTPD Server (GridFTP Server) [127.0.0.1]",
            IacHandling::Doubled,
        ),
        (
            "h GridFTP Server 13.20 (gcc64, 1560187294-0) [Globus Toolkit 6.0] ready.",
            IacHandling::Dropped,
        ),
        ("(vsFTPd 3.0.5)", IacHandling::Literal),
    ] {
        assert_eq!(
            IacHandling::from_greeting(&Reply::new(220, text)),
            telnet,
            "{text}"
        );
    }
}

/// Somebody on the way could have put words of his own behind AUTH, and a password must not go out
/// before the exchange is over.
#[test]
fn a_flight_never_crosses_an_exchange() {
    let set = |command| PlanStep::Set(command, RefusalEffect::Fatal);
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
    let flights = ahead().group_for_pipelining(steps);
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
    assert!(ahead().group_for_pipelining(Vec::new()).is_empty());
    let auth = || Command::Auth("TLS".to_owned());
    assert!(may_pipeline(&[]));
    assert!(may_pipeline(&[Command::Feat, auth()]));
    assert!(!may_pipeline(&[auth(), Command::Feat]));
    assert!(!may_pipeline(&[auth(), auth()]));
}
