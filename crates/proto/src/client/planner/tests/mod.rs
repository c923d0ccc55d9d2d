//! Command lists for existing servers, as their FEAT replies describe them.

mod pipelines;
mod protection;
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
    let mut planner = CommandPlanner::new(features);
    planner.on_accepted(&Command::Type(DataType::Image));
    planner
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

/// A server that does not answer FEAT.
fn ancient() -> CommandPlanner {
    CommandPlanner::new(ServerFeatures::default())
}

fn get(
    planner: &CommandPlanner,
    mode: TransferMode,
    part: Option<(u64, u64)>,
    have: &RangeSet,
) -> TransferRequirements {
    let chosen = plan_retrieval(planner.features(), mode, b"/f", part, false, have).unwrap();
    TransferRequirements {
        protection: None,
        direction: TransferDirection::Send,
        mode,
        streams: ParallelismRange::fixed(if mode == TransferMode::Extended { 4 } else { 1 }),
        congestion_control: None,
        buffer: None,
        buffer_sizing: Some(BufferSizing::Auto),
        announcements: Vec::new(),
        announced_size: None,
        passing_checksum: None,
        restart: chosen.restart,
        server_listens: mode == TransferMode::Stream,
        connections_reusable: false,
        command: chosen.command,
    }
}

fn put(mode: TransferMode, restart: Option<RestartMarker>) -> TransferRequirements {
    TransferRequirements {
        protection: None,
        direction: TransferDirection::Receive,
        mode,
        streams: ParallelismRange::fixed(if mode == TransferMode::Extended { 4 } else { 1 }),
        congestion_control: None,
        buffer: None,
        buffer_sizing: Some(BufferSizing::Auto),
        announcements: Vec::new(),
        announced_size: Some(300),
        passing_checksum: Some(ChecksumAlgorithm::Crc32c),
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

/// Runs a plan on a server that accepts everything.
fn run(planner: &mut CommandPlanner, requirements: &TransferRequirements) -> Vec<String> {
    let steps = planner.plan(requirements);
    for step in &steps {
        match step {
            PlanStep::Set(command, _) => planner.on_accepted(command),
            PlanStep::DrsListen => {
                planner.set_drs_address(ServerDrsAddress::Listens(drs_address(1)));
            }
            PlanStep::Listen | PlanStep::Connect => planner.on_address_given(requirements),
            PlanStep::Transfer(_) => planner.on_transferred(),
        }
    }
    lines(&steps)
}

fn set(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

#[test]
fn get_plans_fit_the_features_of_each_server() {
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
    for (mut planner, mode, part, have, expected) in table {
        let requirements = get(&planner, mode, part, have);
        assert_eq!(run(&mut planner, &requirements), expected);
    }
}

#[test]
fn put_plans_fit_the_features_of_each_server() {
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
    // The option stays in force, so it is not sent again.
    assert_eq!(
        run(&mut ours, &put(TransferMode::Stream, None)),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
}

#[test]
fn a_server_that_announces_it_is_asked_once_to_checksum_what_it_sends() {
    let mut ours = server(&["CKSM.RETR"]);
    let mut requirements = get(&ours, TransferMode::Stream, None, &RangeSet::new());
    requirements.passing_checksum = Some(ChecksumAlgorithm::Crc32c);
    assert_eq!(
        run(&mut ours, &requirements),
        ["OPTS RETR Checksum=CRC32C;", "<listen>", "RETR /f"]
    );
    assert_eq!(run(&mut ours, &requirements), ["<listen>", "RETR /f"]);
    for mut other in [globus(), longhaul()] {
        assert_eq!(run(&mut other, &requirements), ["<listen>", "RETR /f"]);
    }
    requirements.passing_checksum = None;
    let plan = lines(&ours.plan(&requirements));
    assert_eq!(plan, ["OPTS RETR Checksum=None;", "<listen>", "RETR /f"]);
    let option = RetrieveOption::Checksum(None);
    ours.on_refused(&Command::Opts(OptsCommand::Retr(vec![option])));
    assert_eq!(run(&mut ours, &requirements), ["<listen>", "RETR /f"]);
}

#[test]
fn buffer_sizes_use_sbuf_or_the_site_form_that_the_server_supports() {
    let cases: [(CommandPlanner, &str); 2] = [
        (globus(), "SITE RETRBUFSIZE 65536"),
        (longhaul(), "SBUF 65536"),
    ];
    for (mut planner, expected) in cases {
        let mut requirements = get(&planner, TransferMode::Stream, None, &RangeSet::new());
        requirements.buffer = Some(65536);
        assert_eq!(
            run(&mut planner, &requirements),
            [expected, "<listen>", "RETR /f"]
        );
        assert_eq!(run(&mut planner, &requirements), ["<listen>", "RETR /f"]);
    }
    let mut plain = vsftpd();
    let mut requirements = get(&plain, TransferMode::Stream, None, &RangeSet::new());
    requirements.buffer = Some(65536);
    assert_eq!(run(&mut plain, &requirements), ["<listen>", "RETR /f"]);
}

#[test]
fn another_congestion_control_needs_new_connections() {
    let mut planner = server(&["PARALLEL", "TUNE Streams;Congestion;"]);
    let mut requirements = get(&planner, TransferMode::Extended, None, &RangeSet::new());
    requirements.congestion_control = Some("cubic".to_owned());
    run(&mut planner, &requirements);
    requirements.connections_reusable = true;
    assert_eq!(run(&mut planner, &requirements), ["RETR /f"]);
    requirements.congestion_control = Some("bbr".to_owned());
    assert_eq!(
        run(&mut planner, &requirements),
        ["OPTS TUNE Congestion=bbr;", "<connect>", "RETR /f"]
    );
}

#[test]
fn connections_are_reused_in_the_same_direction_only() {
    let mut planner = globus();
    let mut requirements = get(&planner, TransferMode::Extended, None, &RangeSet::new());
    run(&mut planner, &requirements);
    requirements.connections_reusable = true;
    assert_eq!(run(&mut planner, &requirements), ["RETR /f"]);

    let mut fewer = requirements.clone();
    fewer.streams = ParallelismRange::fixed(2);
    assert_eq!(
        run(&mut planner, &fewer),
        ["OPTS RETR Parallelism=2,2,2;", "<connect>", "RETR /f"]
    );

    let mut store = put(TransferMode::Extended, None);
    store.connections_reusable = true;
    assert_eq!(
        run(&mut planner, &store),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
    planner.on_channel_lost();
    assert_eq!(
        run(&mut planner, &store),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
}

/// After a listing in MODE S, the globus server would continue with its cached MODE E connections
/// unless it gets a new address.
#[test]
fn a_listing_in_between_requires_a_new_mode_and_address() {
    let mut planner = globus();
    let mut extended = get(&planner, TransferMode::Extended, None, &RangeSet::new());
    run(&mut planner, &extended);
    let mut listing = get(&planner, TransferMode::Stream, None, &RangeSet::new());
    listing.command = Command::Mlsd(Some(b"/".to_vec()));
    listing.connections_reusable = true;
    assert_eq!(
        run(&mut planner, &listing),
        ["MODE S", "<listen>", "MLSD /"]
    );
    extended.connections_reusable = true;
    assert_eq!(
        run(&mut planner, &extended),
        ["MODE E", "<connect>", "RETR /f"]
    );
}

#[test]
fn refused_settings_are_not_sent_again() {
    let mut planner = globus();
    assert!(planner.may_use_extended_mode());
    planner.on_refused(&Command::Mode(TransferMode::Extended));
    assert!(!planner.may_use_extended_mode() && planner.is_extended_mode_refused());
    assert!(!vsftpd().may_use_extended_mode());
    assert!(ancient().may_use_extended_mode());

    let mut requirements = get(&planner, TransferMode::Stream, None, &RangeSet::new());
    requirements.buffer = Some(1 << 20);
    planner.on_refused(&Command::Site(SiteCommand::Buffer(
        BufferDirection::Send,
        1 << 20,
    )));
    assert_eq!(run(&mut planner, &requirements), ["<listen>", "RETR /f"]);
}

#[test]
fn a_server_without_rest_and_eret_can_send_only_from_the_start() {
    let no_rest = server(&["SIZE"]);
    let features = no_rest.features();
    let have = RangeSet::new();
    assert!(
        plan_retrieval(
            features,
            TransferMode::Stream,
            b"/f",
            Some((5, 5)),
            false,
            &have
        )
        .is_err()
    );
    let head = plan_retrieval(
        features,
        TransferMode::Stream,
        b"/f",
        Some((0, 5)),
        false,
        &have,
    )
    .unwrap();
    assert!(head.overruns && head.restart.is_none());
    let whole = plan_retrieval(
        features,
        TransferMode::Stream,
        b"/f",
        None,
        false,
        &set("0-9"),
    )
    .unwrap();
    assert_eq!((whole.start, whole.restart), (0, None));
}

#[test]
fn too_many_ranges_are_reduced_to_the_longest() {
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
fn large_stores_request_frequent_markers_once() {
    let mut planner = globus();
    let mut large = put(TransferMode::Extended, None);
    large.announced_size = Some(MIN_SIZE_FOR_MARKERS);
    let first = run(&mut planner, &large);
    assert!(first.contains(&"TREV RESTART 1".to_owned()), "{first:?}");
    assert!(first.contains(&"TREV PERF 1".to_owned()), "{first:?}");
    let again = run(&mut planner, &large);
    assert!(!again.iter().any(|l| l.starts_with("TREV")), "{again:?}");
    let small = run(&mut globus(), &put(TransferMode::Extended, None));
    assert!(!small.iter().any(|l| l.starts_with("TREV")), "{small:?}");
    // A small part of a file has others beside it.
    let part = TransferRequirements {
        command: Command::Esto(ExtendedStore::Adjusted { offset: 300 }, b"/f".to_vec()),
        ..put(TransferMode::Extended, None)
    };
    let parts = run(&mut globus(), &part);
    assert!(parts.contains(&"TREV PERF 1".to_owned()), "{parts:?}");
    let mut stream = put(TransferMode::Stream, None);
    stream.announced_size = Some(MIN_SIZE_FOR_MARKERS);
    assert!(
        !run(&mut globus(), &stream)
            .iter()
            .any(|l| l.starts_with("TREV"))
    );
}
