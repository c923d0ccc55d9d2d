//! Pipelining: commands that are sent together, and commands that wait for a reply.

use proptest::prelude::*;

use super::*;
use crate::client::{IacHandling, may_pipeline, supports_pipelining};
use crate::command::OptsCommand;
use crate::security::{
    DataChannelAuth, DataChannelProtection, ExchangeKind, ProtectionLevel, SecurityToken,
};

/// The full feature list of a longhaul server, with pipelining.
fn pipelining() -> CommandPlanner {
    server(&[
        "CKSM CRC32C:1;",
        "CKSM.STOR",
        "PARALLEL",
        "SBUF",
        "ERET",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;drs2004;",
    ])
    .with_pipelining()
}

fn pipelined(planner: &CommandPlanner, requirements: &TransferRequirements) -> Vec<Vec<String>> {
    let pipelines = planner.pipelined_plan(requirements);
    pipelines.iter().map(|pipeline| lines(pipeline)).collect()
}

#[test]
fn only_the_greeting_of_a_longhaul_server_enables_pipelining() {
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
fn a_get_over_several_streams_is_one_pipeline() {
    let requirements = get(
        &pipelining(),
        TransferMode::Extended,
        None,
        &RangeSet::new(),
    );
    assert_eq!(
        pipelined(&pipelining(), &requirements),
        [[
            "MODE E",
            "OPTS RETR Parallelism=4,4,4;",
            "<connect>",
            "RETR /f"
        ]]
    );
}

#[test]
fn a_get_over_one_stream_waits_for_the_passive_address() {
    let requirements = get(&pipelining(), TransferMode::Stream, None, &set("0-100"));
    assert_eq!(
        pipelined(&pipelining(), &requirements),
        [vec!["<listen>", "REST 100"], vec!["RETR /f"]]
    );
}

/// A server that truncates its file before REST is known to be accepted would destroy the data that a
/// resumed put builds on.
#[test]
fn a_store_waits_for_replies_to_all_required_settings() {
    let requirements = put(
        TransferMode::Extended,
        Some(RestartMarker::Ranges(set("0-7"))),
    );
    assert_eq!(
        pipelined(&pipelining(), &requirements),
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
fn a_store_over_reused_connections_is_one_pipeline_without_rest() {
    let mut planner = pipelining();
    let mut requirements = put(TransferMode::Extended, None);
    run(&mut planner, &requirements);
    requirements.connections_reusable = true;
    assert_eq!(
        pipelined(&planner, &requirements),
        [["ALLO 300", "STOR /f"]]
    );
    requirements.restart = Some(RestartMarker::Ranges(set("0-7")));
    assert_eq!(
        pipelined(&planner, &requirements),
        [vec!["ALLO 300", "REST 0-7"], vec!["STOR /f"]]
    );
}

#[test]
fn a_gridftp_server_gets_settings_together_behind_mode_e_and_the_transfer_alone() {
    let requirements = put(TransferMode::Extended, None);
    let planner = globus().with_commands_ahead();
    let pipelines = planner.pipelined_plan(&requirements);
    assert_eq!(pipelines.concat(), globus().plan(&requirements));
    assert_eq!(lines(&pipelines[0]), ["MODE E"]);
    assert_eq!(pipelines.len(), 3);
    assert_eq!(pipelines[2].len(), 1);
    let plain = CommandPlanner::new(ServerFeatures::default()).with_commands_ahead();
    assert!(!plain.takes_commands_ahead());
}

#[test]
fn other_servers_get_one_command_at_a_time() {
    let requirements = get(&globus(), TransferMode::Extended, None, &set("0-7"));
    let pipelines = globus().pipelined_plan(&requirements);
    assert!(pipelines.iter().all(|pipeline| pipeline.len() == 1));
    assert_eq!(pipelines.concat(), globus().plan(&requirements));
    let steps = globus().setting_steps(&requirements);
    assert_eq!(globus().group_for_pipelining(steps.clone()).concat(), steps);
    assert_eq!(
        pipelining().group_for_pipelining(Vec::new()),
        Vec::<Vec<PlanStep>>::new()
    );
}

/// Every server that announces DRS supports both OPTS DRS and DPSV.
#[test]
fn opts_drs_and_dpsv_are_sent_together() {
    let careful = server(&["PARALLEL", "SBUF", "DRS auto;kernel;drs1;drs;drs2004;"]);
    let mut requirements = get(&careful, TransferMode::Extended, None, &RangeSet::new());
    requirements.buffer_sizing = Some(BufferSizing::Drs2004);
    assert_eq!(
        pipelined(&careful, &requirements)[1],
        ["OPTS DRS drs2004", "<drs>"]
    );
    requirements.buffer_sizing = Some(BufferSizing::Drs);
    assert_eq!(
        pipelined(&careful, &requirements),
        [
            vec!["MODE E"],
            vec!["OPTS DRS drs", "<drs>"],
            vec!["OPTS RETR Parallelism=4,4,4;"],
            vec!["<connect>"],
            vec!["RETR /f"]
        ]
    );
    assert_eq!(
        pipelined(&pipelining(), &requirements),
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
fn refusals_with_fatal_effects_make_a_step_mandatory() {
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

fn requirements_strategy() -> impl Strategy<Value = TransferRequirements> {
    let sizing = prop::sample::select(vec![
        BufferSizing::Auto,
        BufferSizing::Kernel,
        BufferSizing::Drs1,
        BufferSizing::Drs,
        BufferSizing::Drs2004,
    ]);
    (
        any::<(bool, bool, bool, bool)>(),
        prop::option::of(any::<(bool, bool)>()),
        prop::option::of(1..1_u64 << 30),
        sizing,
    )
        .prop_map(
            |((stores, extended, some, reusable), protection, buffer, sizing)| {
                let mode = match extended {
                    true => TransferMode::Extended,
                    false => TransferMode::Stream,
                };
                let have = if some { set("0-9") } else { RangeSet::new() };
                let mut requirements = match stores {
                    true => put(mode, some.then_some(RestartMarker::Ranges(have))),
                    false => get(&pipelining(), mode, None, &have),
                };
                requirements.buffer = buffer;
                requirements.buffer_sizing = Some(sizing);
                requirements.connections_reusable = reusable;
                requirements.protection =
                    protection.map(|(authenticated, private)| DataChannelProtection {
                        authentication: match authenticated {
                            true => DataChannelAuth::SelfAuth,
                            false => DataChannelAuth::None,
                        },
                        level: match private {
                            true => ProtectionLevel::Private,
                            false => ProtectionLevel::Clear,
                        },
                    });
                requirements
            },
        )
}

proptest! {
    /// For any earlier transfers, the pipelines hold exactly the steps of the plan, the transfer command
    /// is the last, no store starts before its mandatory steps are answered, and no transfer before the
    /// protection of its data connections is accepted.
    #[test]
    fn pipelines_hold_the_steps_of_the_plan(
        before in prop::collection::vec(requirements_strategy(), 0..3),
        requirements in requirements_strategy(),
    ) {
        for mut planner in [
            pipelining(),
            pipelining().with_security(ExchangeKind::Tokens),
            server(&["PARALLEL", "SBUF", "DRS auto;kernel;drs1;drs;drs2004;"]),
        ] {
            for earlier in &before {
                run(&mut planner, earlier);
            }
            let pipelines = planner.pipelined_plan(&requirements);
            let mut pipelined = pipelines.concat();
            let mut planned = planner.plan(&requirements);
            let last = pipelined.last().cloned();
            prop_assert_eq!(last, Some(PlanStep::Transfer(requirements.command.clone())));
            let order = |step: &PlanStep| format!("{step:?}");
            pipelined.sort_by_key(order);
            planned.sort_by_key(order);
            prop_assert_eq!(pipelined, planned);
            for pipeline in &pipelines {
                prop_assert!(!pipeline.is_empty());
                if requirements.direction == TransferDirection::Receive && pipeline.len() > 1 {
                    let begins = pipeline.iter().any(|step| matches!(step, PlanStep::Transfer(_)));
                    prop_assert!(!begins || !pipeline.iter().any(PlanStep::must_succeed), "{:?}", pipeline);
                }
                let protects = |step: &PlanStep| {
                    matches!(step, PlanStep::Set(Command::Prot(_) | Command::Dcau(_), _))
                };
                let transfers = matches!(pipeline.last(), Some(PlanStep::Transfer(_)));
                prop_assert!(!transfers || !pipeline.iter().any(protects), "{:?}", pipeline);
                let careful = planner.supports_pipelining() || pipeline.len() == 1;
                prop_assert!(careful || pipeline[1..] == [PlanStep::DrsListen], "{:?}", pipeline);
            }
        }
    }
}

#[test]
fn the_greeting_shows_how_the_server_handles_iac() {
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

/// An attacker on the path could inject data behind AUTH, and a password must not be sent before the
/// exchange is complete.
#[test]
fn a_pipeline_ends_at_each_command_of_a_security_exchange() {
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
    let pipelines = pipelining().group_for_pipelining(steps);
    let shown: Vec<_> = pipelines.iter().map(|pipeline| lines(pipeline)).collect();
    assert_eq!(
        shown,
        [
            vec!["FEAT", "AUTH TLS"],
            vec!["USER ann", "ADAT eA=="],
            vec!["ADAT eA=="],
            vec!["PWD", "CCC"],
        ]
    );
    assert!(pipelining().group_for_pipelining(Vec::new()).is_empty());
    let auth = || Command::Auth("TLS".to_owned());
    assert!(may_pipeline(&[]));
    assert!(may_pipeline(&[Command::Feat, auth()]));
    assert!(!may_pipeline(&[auth(), Command::Feat]));
    assert!(!may_pipeline(&[auth(), auth()]));
}
