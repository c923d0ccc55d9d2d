//! Command lists for the servers that exist, as their FEAT replies describe them.

mod flights;
mod right_sizing;

use super::*;
use crate::client::{DrsEnd, retrieval, usable_ranges};
use crate::drs::{DrsAddress, Nonce};
use crate::ranges::RangeSet;
use crate::reply::Reply;
use crate::sizing::Sizing;
use crate::streams::StreamRange;

fn server(lines: &[&str]) -> Dialogue {
    let inner = lines.iter().map(|l| l.as_bytes().to_vec()).collect();
    let features = Features::from_reply(&Reply::data(211, "Features", inner, "End."));
    let mut dialogue = Dialogue::new(features);
    dialogue.accepted(&Command::Type(Type::Image));
    dialogue
}

fn globus() -> Dialogue {
    server(&[
        "CKSM MD5:10;ADLER32:10;",
        "PARALLEL",
        "SIZE",
        "ERET",
        "ESTO",
        "REST STREAM",
    ])
}

fn vsftpd() -> Dialogue {
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

fn pyftpdlib() -> Dialogue {
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

fn longhaul() -> Dialogue {
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
        at: ([192, 0, 2, 7], port).into(),
        nonce: Nonce::new([7; 16]),
    }
}

/// No FEAT at all.
fn ancient() -> Dialogue {
    Dialogue::new(Features::default())
}

fn get(dialogue: &Dialogue, mode: Mode, part: Option<(u64, u64)>, have: &RangeSet) -> Need {
    let chosen = retrieval(dialogue.features(), mode, b"/f", part, have).unwrap();
    Need {
        direction: Direction::Send,
        mode,
        streams: StreamRange::fixed(if mode == Mode::Extended { 4 } else { 1 }),
        congestion: None,
        buffer: None,
        sizing: Some(Sizing::Auto),
        allocate: None,
        store_sum: None,
        restart: chosen.restart,
        server_listens: mode == Mode::Stream,
        reusable: false,
        verb: chosen.verb,
    }
}

fn put(mode: Mode, restart: Option<Restart>) -> Need {
    Need {
        direction: Direction::Receive,
        mode,
        streams: StreamRange::fixed(if mode == Mode::Extended { 4 } else { 1 }),
        congestion: None,
        buffer: None,
        sizing: Some(Sizing::Auto),
        allocate: Some(300),
        store_sum: Some(Algorithm::Crc32c),
        restart,
        server_listens: true,
        reusable: false,
        verb: Command::Stor(b"/f".to_vec()),
    }
}

fn lines(steps: &[Step]) -> Vec<String> {
    steps
        .iter()
        .map(|step| match step {
            Step::Set(command, _) | Step::Transfer(command) => {
                String::from_utf8(command.encode()).unwrap()
            }
            Step::DrsListen => "<drs>".to_owned(),
            Step::Listen => "<listen>".to_owned(),
            Step::Connect => "<connect>".to_owned(),
        })
        .collect()
}

/// Carries a plan out on a server that accepts everything.
fn run(dialogue: &mut Dialogue, need: &Need) -> Vec<String> {
    let steps = dialogue.plan(need);
    for step in &steps {
        match step {
            Step::Set(command, _) => dialogue.accepted(command),
            Step::DrsListen => dialogue.drs_given(DrsEnd::Listens(drs_address(1))),
            Step::Listen | Step::Connect => dialogue.address_given(need),
            Step::Transfer(_) => dialogue.transferred(),
        }
    }
    lines(&steps)
}

fn set(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

#[test]
fn gets() {
    use Mode::{Extended, Stream};
    let none = RangeSet::new();
    let some = set("0-100,200-300");
    let part = Some((1000, 500));
    type Row<'a> = (
        Dialogue,
        Mode,
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
        run(&mut plain, &put(Mode::Stream, Some(Restart::Offset(7)))),
        ["<listen>", "ALLO 300", "REST 7", "STOR /f"]
    );
    let mut globus = globus();
    assert_eq!(
        run(
            &mut globus,
            &put(Mode::Extended, Some(Restart::Ranges(set("0-7"))))
        ),
        ["MODE E", "<listen>", "ALLO 300", "REST 0-7", "STOR /f"]
    );
    let mut ours = longhaul();
    assert_eq!(
        run(&mut ours, &put(Mode::Stream, None)),
        [
            "OPTS STOR Checksum=CRC32C;",
            "<listen>",
            "ALLO 300",
            "STOR /f"
        ]
    );
    // Once set, it stays.
    assert_eq!(
        run(&mut ours, &put(Mode::Stream, None)),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
}

#[test]
fn buffers_by_what_the_server_has() {
    let cases: [(Dialogue, &str); 2] = [
        (globus(), "SITE RETRBUFSIZE 65536"),
        (longhaul(), "SBUF 65536"),
    ];
    for (mut dialogue, expected) in cases {
        let mut need = get(&dialogue, Mode::Stream, None, &RangeSet::new());
        need.buffer = Some(65536);
        assert_eq!(run(&mut dialogue, &need), [expected, "<listen>", "RETR /f"]);
        assert_eq!(run(&mut dialogue, &need), ["<listen>", "RETR /f"]);
    }
    let mut plain = vsftpd();
    let mut need = get(&plain, Mode::Stream, None, &RangeSet::new());
    need.buffer = Some(65536);
    assert_eq!(run(&mut plain, &need), ["<listen>", "RETR /f"]);
}

#[test]
fn connections_run_the_congestion_control_that_they_were_opened_with() {
    let mut dialogue = server(&["PARALLEL", "TUNE Streams;Congestion;"]);
    let mut need = get(&dialogue, Mode::Extended, None, &RangeSet::new());
    need.congestion = Some("cubic".to_owned());
    run(&mut dialogue, &need);
    need.reusable = true;
    assert_eq!(run(&mut dialogue, &need), ["RETR /f"]);
    need.congestion = Some("bbr".to_owned());
    assert_eq!(
        run(&mut dialogue, &need),
        ["OPTS TUNE Congestion=bbr;", "<connect>", "RETR /f"]
    );
}

#[test]
fn connections_are_reused_in_the_same_direction_only() {
    let mut dialogue = globus();
    let mut need = get(&dialogue, Mode::Extended, None, &RangeSet::new());
    run(&mut dialogue, &need);
    need.reusable = true;
    assert_eq!(run(&mut dialogue, &need), ["RETR /f"]);

    let mut fewer = need.clone();
    fewer.streams = StreamRange::fixed(2);
    assert_eq!(
        run(&mut dialogue, &fewer),
        ["OPTS RETR Parallelism=2,2,2;", "<connect>", "RETR /f"]
    );

    let mut store = put(Mode::Extended, None);
    store.reusable = true;
    assert_eq!(
        run(&mut dialogue, &store),
        ["<listen>", "ALLO 300", "STOR /f"]
    );
    dialogue.channel_lost();
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
    let mut extended = get(&dialogue, Mode::Extended, None, &RangeSet::new());
    run(&mut dialogue, &extended);
    let mut listing = get(&dialogue, Mode::Stream, None, &RangeSet::new());
    listing.verb = Command::Mlsd(Some(b"/".to_vec()));
    listing.reusable = true;
    assert_eq!(
        run(&mut dialogue, &listing),
        ["MODE S", "<listen>", "MLSD /"]
    );
    extended.reusable = true;
    assert_eq!(
        run(&mut dialogue, &extended),
        ["MODE E", "<connect>", "RETR /f"]
    );
}

#[test]
fn refusals_are_remembered() {
    let mut dialogue = globus();
    assert!(dialogue.may_extend());
    dialogue.refused(&Command::Mode(Mode::Extended));
    assert!(!dialogue.may_extend() && dialogue.extended_refused());
    assert!(!vsftpd().may_extend());
    assert!(ancient().may_extend());

    let mut need = get(&dialogue, Mode::Stream, None, &RangeSet::new());
    need.buffer = Some(1 << 20);
    dialogue.refused(&Command::Site(Site::Buffer(BufferSide::Send, 1 << 20)));
    assert_eq!(run(&mut dialogue, &need), ["<listen>", "RETR /f"]);
}

#[test]
fn a_server_that_can_do_no_parts_is_told_apart() {
    let no_rest = server(&["SIZE"]);
    let features = no_rest.features();
    let have = RangeSet::new();
    assert!(retrieval(features, Mode::Stream, b"/f", Some((5, 5)), &have).is_err());
    let head = retrieval(features, Mode::Stream, b"/f", Some((0, 5)), &have).unwrap();
    assert!(head.overruns && head.restart.is_none());
    let whole = retrieval(features, Mode::Stream, b"/f", None, &set("0-9")).unwrap();
    assert_eq!((whole.start, whole.restart), (0, None));
}

#[test]
fn a_long_list_of_ranges_keeps_the_longest() {
    let mut have = RangeSet::new();
    for i in 0..1000_u64 {
        have.insert(i * 1000, i * 1000 + 10 + i % 7);
    }
    have.insert(5_000_000, 6_000_000);
    let kept = usable_ranges(&have);
    assert!(kept.count() <= 200);
    assert!(kept.contains(5_000_000, 6_000_000));
    for r in kept.iter() {
        assert!(have.contains(r.start, r.end));
    }
}

#[test]
fn large_stores_ask_for_frequent_markers_once() {
    let mut dialogue = globus();
    let mut large = put(Mode::Extended, None);
    large.allocate = Some(MARKERS_FROM);
    let first = run(&mut dialogue, &large);
    assert!(first.contains(&"TREV RESTART 1".to_owned()), "{first:?}");
    assert!(first.contains(&"TREV PERF 1".to_owned()), "{first:?}");
    let again = run(&mut dialogue, &large);
    assert!(!again.iter().any(|l| l.starts_with("TREV")), "{again:?}");
    let small = run(&mut globus(), &put(Mode::Extended, None));
    assert!(!small.iter().any(|l| l.starts_with("TREV")), "{small:?}");
    let mut stream = put(Mode::Stream, None);
    stream.allocate = Some(MARKERS_FROM);
    assert!(
        !run(&mut globus(), &stream)
            .iter()
            .any(|l| l.starts_with("TREV"))
    );
}
