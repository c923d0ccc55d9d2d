//! Command lists for the servers that exist, as their FEAT replies describe them.

mod pipelines;
mod right_sizing;

use super::*;
use crate::client::{ServerDrsAddress, longest_ranges, plan_retrieval};
use crate::drs::{DrsAddress, Nonce};
use crate::ranges::RangeSet;
use crate::reply::Reply;
use crate::sizing::BufferSizing;
use crate::streams::ParallelismRange;

fn server(lines: &[&str]) -> CommandPlanner {
    let inner = lines.iter().map(|l| l.as_bytes().to_vec()).collect();
    let features =
        ServerFeatures::from_reply(&Reply::with_inner_lines(211, "Features", inner, "End."));
    let mut dialogue = CommandPlanner::new(features);
    dialogue.on_accepted(&Command::Type(DataType::Image));
    dialogue
}

fn globus() -> CommandPlanner {
    server(&[
        "CKSM MD5:10;ADLER32:10;",
        "PARALLEL",
        "SIZE",
        "ERET",
        "ESTO",
        "REST STREAM",
    ])
}

fn vsftpd() -> CommandPlanner {
    server(&[
        "EPRT",
        "EPSV",
        "MDTM",
        "PASV",
        "REST STREAM",
        "SIZE",
        "TVFS",
    ])
}

fn pyftpdlib() -> CommandPlanner {
    server(&[
        "EPRT",
        "EPSV",
        "MDTM",
        "MFMT",
        "MLST type*;",
        "REST STREAM",
        "SIZE",
        "TVFS",
        "UTF8",
    ])
}

fn longhaul() -> CommandPlanner {
    server(&[
        "CKSM CRC32C:1;",
        "CKSM.STOR",
        "PARALLEL",
        "SBUF",
        "ERET",
        "REST STREAM",
    ])
}

fn drs_address(port: u16) -> DrsAddress {
    DrsAddress {
        socket: ([192, 0, 2, 7], port).into(),
        nonce: Nonce::new([7; 16]),
    }
}

/// No FEAT at all.
fn ancient() -> CommandPlanner {
    CommandPlanner::new(ServerFeatures::default())
}

fn get(
    dialogue: &CommandPlanner,
    mode: TransferMode,
    part: Option<(u64, u64)>,
    have: &RangeSet,
) -> TransferRequirements {
    let chosen = plan_retrieval(dialogue.features(), mode, b"/f", part, have).unwrap();
    TransferRequirements {
        direction: TransferDirection::Send,
        mode,
        streams: ParallelismRange::fixed(if mode == TransferMode::Extended { 4 } else { 1 }),
        congestion_control: None,
        buffer: None,
        buffer_sizing: Some(BufferSizing::Auto),
        announced_size: None,
        store_checksum: None,
        restart: chosen.restart,
        server_listens: mode == TransferMode::Stream,
        connections_reusable: false,
        command: chosen.verb,
    }
}

fn put(mode: TransferMode, restart: Option<RestartMarker>) -> TransferRequirements {
    TransferRequirements {
        direction: TransferDirection::Receive,
        mode,
        streams: ParallelismRange::fixed(if mode == TransferMode::Extended { 4 } else { 1 }),
        congestion_control: None,
        buffer: None,
        buffer_sizing: Some(BufferSizing::Auto),
        announced_size: Some(300),
        store_checksum: Some(ChecksumAlgorithm::Crc32c),
        restart,
        server_listens: true,
        connections_reusable: false,
        command: Command::Stor(b"/f".to_vec()),
    }
}

fn lines(steps: &[PlanStep]) -> Vec<String> {
    steps
        .iter()
        .map(|step| match step {
            PlanStep::Set(command, _) | PlanStep::Transfer(command) => {
                String::from_utf8(command.encode()).unwrap()
            }
            PlanStep::DrsListen => "<drs>".to_owned(),
            PlanStep::Listen => "<listen>".to_owned(),
            PlanStep::Connect => "<connect>".to_owned(),
        })
        .collect()
}

/// Carries a plan out on a server that accepts everything.
fn run(dialogue: &mut CommandPlanner, need: &TransferRequirements) -> Vec<String> {
    let steps = dialogue.plan(need);
    for step in &steps {
        match step {
            PlanStep::Set(command, _) => dialogue.on_accepted(command),
            PlanStep::DrsListen => {
                dialogue.set_drs_address(ServerDrsAddress::Listens(drs_address(1)));
            }
            PlanStep::Listen | PlanStep::Connect => dialogue.on_address_given(need),
            PlanStep::Transfer(_) => dialogue.on_transferred(),
        }
    }
    lines(&steps)
}

fn set(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

#[test]
fn gets() {
    use TransferMode::{Extended, Stream};
    let none = RangeSet::new();
    let some = set("0-100,200-300");
    let part = Some((1000, 500));
    type Row<'a> = (
        CommandPlanner,
        TransferMode,
        Option<(u64, u64)>,
        &'a RangeSet,
        &'a [&'a str],
    );
    let table: Vec<Row<'_>> = vec![
        (globus(), Stream, None, &none, &["<listen>", "RETR /f"]),
        (
            globus(),
            Stream,
            None,
            &some,
            &["<listen>", "REST 100", "RETR /f"],
        ),
        (
            globus(),
            Stream,
            part,
            &some,
            &["<listen>", "ERET P 1100 400 /f"],
        ),
        (
            globus(),
            Extended,
            None,
            &none,
            &[
                "MODE E",
                "OPTS RETR Parallelism=4,4,4;",
                "<connect>",
                "RETR /f",
            ],
        ),
        (
            globus(),
            Extended,
            part,
            &some,
            &[
                "MODE E",
                "OPTS RETR Parallelism=4,4,4;",
                "<connect>",
                "REST 0-100,200-300",
                "ERET P 1000 500 /f",
            ],
        ),
        (vsftpd(), Stream, None, &none, &["<listen>", "RETR /f"]),
        (
            vsftpd(),
            Stream,
            part,
            &some,
            &["<listen>", "REST 1100", "RETR /f"],
        ),
        (
            pyftpdlib(),
            Stream,
            None,
            &some,
            &["<listen>", "REST 100", "RETR /f"],
        ),
        (
            ancient(),
            Stream,
            None,
            &some,
            &["TYPE I", "<listen>", "REST 100", "RETR /f"],
        ),
    ];
    for (mut dialogue, mode, part, have, expected) in table {
        let need = get(&dialogue, mode, part, have);
        assert_eq!(run(&mut dialogue, &need), expected);
    }
}

#[test]
fn puts() {
    let mut plain = vsftpd();
    assert_eq!(
        run(
            &mut plain,
            &put(TransferMode::Stream, Some(RestartMarker::Offset(7)))
        ),
        ["<listen>", "ALLO 300", "REST 7", "STOR /f"]
    );
    let mut globus = globus();
    assert_eq!(
        run(
            &mut globus,
            &put(
                TransferMode::Extended,
                Some(RestartMarker::Ranges(set("0-7")))
            )
        ),
        ["MODE E", "<listen>", "ALLO 300", "REST 0-7", "STOR /f"]
    );
    let mut ours = longhaul();
    assert_eq!(
        run(&mut ours, &put(TransferMode::Stream, None)),
        [
            "OPTS STOR Checksum=CRC32C;",
            "<listen>",
            "ALLO 300",
            "STOR /f"
        ]
    );
    // Once set, it stays.
    assert_eq!(
        run(&mut ours, &put(TransferMode::Stream, None)),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
}

#[test]
fn buffers_by_what_the_server_has() {
    let cases: [(CommandPlanner, &str); 2] = [
        (globus(), "SITE RETRBUFSIZE 65536"),
        (longhaul(), "SBUF 65536"),
    ];
    for (mut dialogue, expected) in cases {
        let mut need = get(&dialogue, TransferMode::Stream, None, &RangeSet::new());
        need.buffer = Some(65536);
        assert_eq!(run(&mut dialogue, &need), [expected, "<listen>", "RETR /f"]);
        assert_eq!(run(&mut dialogue, &need), ["<listen>", "RETR /f"]);
    }
    let mut plain = vsftpd();
    let mut need = get(&plain, TransferMode::Stream, None, &RangeSet::new());
    need.buffer = Some(65536);
    assert_eq!(run(&mut plain, &need), ["<listen>", "RETR /f"]);
}

#[test]
fn connections_run_the_congestion_control_that_they_were_opened_with() {
    let mut dialogue = server(&["PARALLEL", "TUNE Streams;Congestion;"]);
    let mut need = get(&dialogue, TransferMode::Extended, None, &RangeSet::new());
    need.congestion_control = Some("cubic".to_owned());
    run(&mut dialogue, &need);
    need.connections_reusable = true;
    assert_eq!(run(&mut dialogue, &need), ["RETR /f"]);
    need.congestion_control = Some("bbr".to_owned());
    assert_eq!(
        run(&mut dialogue, &need),
        ["OPTS TUNE Congestion=bbr;", "<connect>", "RETR /f"]
    );
}

#[test]
fn connections_are_reused_in_the_same_direction_only() {
    let mut dialogue = globus();
    let mut need = get(&dialogue, TransferMode::Extended, None, &RangeSet::new());
    run(&mut dialogue, &need);
    need.connections_reusable = true;
    assert_eq!(run(&mut dialogue, &need), ["RETR /f"]);

    let mut fewer = need.clone();
    fewer.streams = ParallelismRange::fixed(2);
    assert_eq!(
        run(&mut dialogue, &fewer),
        ["OPTS RETR Parallelism=2,2,2;", "<connect>", "RETR /f"]
    );

    let mut store = put(TransferMode::Extended, None);
    store.connections_reusable = true;
    assert_eq!(
        run(&mut dialogue, &store),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
    dialogue.on_channel_lost();
    assert_eq!(
        run(&mut dialogue, &store),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
}

/// Wire fact: after MODE S the globus server would go on with its cached MODE E connections unless
/// it gets a new address.
#[test]
fn a_listing_in_between_changes_mode_and_address() {
    let mut dialogue = globus();
    let mut extended = get(&dialogue, TransferMode::Extended, None, &RangeSet::new());
    run(&mut dialogue, &extended);
    let mut listing = get(&dialogue, TransferMode::Stream, None, &RangeSet::new());
    listing.command = Command::Mlsd(Some(b"/".to_vec()));
    listing.connections_reusable = true;
    assert_eq!(
        run(&mut dialogue, &listing),
        ["MODE S", "<listen>", "MLSD /"]
    );
    extended.connections_reusable = true;
    assert_eq!(
        run(&mut dialogue, &extended),
        ["MODE E", "<connect>", "RETR /f"]
    );
}

#[test]
fn refusals_are_remembered() {
    let mut dialogue = globus();
    assert!(dialogue.may_use_extended_mode());
    dialogue.on_refused(&Command::Mode(TransferMode::Extended));
    assert!(!dialogue.may_use_extended_mode() && dialogue.is_extended_mode_refused());
    assert!(!vsftpd().may_use_extended_mode());
    assert!(ancient().may_use_extended_mode());

    let mut need = get(&dialogue, TransferMode::Stream, None, &RangeSet::new());
    need.buffer = Some(1 << 20);
    dialogue.on_refused(&Command::Site(SiteCommand::Buffer(
        BufferDirection::Send,
        1 << 20,
    )));
    assert_eq!(run(&mut dialogue, &need), ["<listen>", "RETR /f"]);
}

#[test]
fn a_server_that_can_do_no_parts_is_told_apart() {
    let no_rest = server(&["SIZE"]);
    let features = no_rest.features();
    let have = RangeSet::new();
    assert!(plan_retrieval(features, TransferMode::Stream, b"/f", Some((5, 5)), &have).is_err());
    let head = plan_retrieval(features, TransferMode::Stream, b"/f", Some((0, 5)), &have).unwrap();
    assert!(head.overruns && head.restart.is_none());
    let whole = plan_retrieval(features, TransferMode::Stream, b"/f", None, &set("0-9")).unwrap();
    assert_eq!((whole.start, whole.restart), (0, None));
}

#[test]
fn a_long_list_of_ranges_keeps_the_longest() {
    let mut have = RangeSet::new();
    for i in 0..1000_u64 {
        have.insert(i * 1000, i * 1000 + 10 + i % 7);
    }
    have.insert(5_000_000, 6_000_000);
    let kept = longest_ranges(&have);
    assert!(kept.range_count() <= 200);
    assert!(kept.contains(5_000_000, 6_000_000));
    for r in kept.iter() {
        assert!(have.contains(r.start, r.end));
    }
}

#[test]
fn large_stores_ask_for_frequent_markers_once() {
    let mut dialogue = globus();
    let mut large = put(TransferMode::Extended, None);
    large.announced_size = Some(MARKERS_FROM);
    let first = run(&mut dialogue, &large);
    assert!(first.contains(&"TREV RESTART 1".to_owned()), "{first:?}");
    assert!(first.contains(&"TREV PERF 1".to_owned()), "{first:?}");
    let again = run(&mut dialogue, &large);
    assert!(!again.iter().any(|l| l.starts_with("TREV")), "{again:?}");
    let small = run(&mut globus(), &put(TransferMode::Extended, None));
    assert!(!small.iter().any(|l| l.starts_with("TREV")), "{small:?}");
    let mut stream = put(TransferMode::Stream, None);
    stream.announced_size = Some(MARKERS_FROM);
    assert!(
        !run(&mut globus(), &stream)
            .iter()
            .any(|l| l.starts_with("TREV"))
    );
}
