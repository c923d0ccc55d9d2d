//! `ssh:` URLs of hosts behind another, with the ports that firewalls leave open, and of servers that permit little.

use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::net;
use interop::peer::sshd::{self, Sshd};
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;
use interop::tree::{ASCII, TestTree};

use super::ssh::{far_end, start_closed};

/// A copy whose dialogue is on standard error.
fn with_dialogue(sshd: &Sshd, options: &[&str], ends: [&str; 2]) -> FinishedProgram {
    let words = [&["-vv", "--ssh", &sshd.ssh], options, &ends].concat();
    copy::run(&words).unwrap().expect_success().unwrap()
}

/// The ports that lines of a dialogue name, behind a word.
fn named_ports(finished: &FinishedProgram, word: &str) -> Vec<u16> {
    let text = finished.stderr_text();
    let lines = text.lines().filter(|line| line.contains(word));
    let port = |line: &str| -> Option<u16> {
        // The last two of six numbers (RFC 959).
        let mut numbers = line
            .rsplit(|c: char| !c.is_ascii_digit())
            .filter(|n| !n.is_empty());
        let (low, high): (u16, u16) =
            (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some(high * 256 + low)
    };
    lines.filter_map(port).collect()
}

#[test]
fn the_ports_of_both_ends_are_of_their_ranges() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let [far, near] = [(); 2].map(|()| net::free_ports(8).unwrap());
    let range = |first: u16| format!("{first}-{}", first + 7);
    let text = format!("exec {{longhaul}} \"$@\" --data-ports {}", range(far));
    let folder = far_end(&store, "ranges", &text);
    let sshd = sshd::start_for(&store, "", &folder).unwrap();
    let from = sshd
        .server
        .url(&format!("src/{}", test_files::name(20_000_000)));
    for (options, word, first) in [
        // One stream: this machine connects.
        (&["-p", "1"][..], "< 227 ", far),
        // Several: the far end does.
        (&["-p", "4", "--data-ports", &range(near)], "> PORT ", near),
    ] {
        let to = store.local();
        let finished = with_dialogue(&sshd, options, [&from, &path_argument(&to)]);
        let ports = named_ports(&finished, word);
        let is_in_range = |port: &u16| (first..first + 8).contains(port);
        assert!(
            !ports.is_empty() && ports.iter().all(is_in_range),
            "{first}: {ports:?}\n{finished}"
        );
        test_files::ensure_same(&test_files::shared(20_000_000).unwrap(), &to).unwrap();
    }
}

#[test]
fn files_pass_through_a_host_on_the_way() {
    require!(sshd::find());
    let [gate_store, store] = [(); 2].map(|()| TestStore::new().unwrap());
    let gate = sshd::start(&gate_store, "").unwrap();
    let target = sshd::start_beside(&gate, &store).unwrap();
    let jump = format!("{} -J {}", gate.ssh, gate.server.address());
    let server = ServerUnderTest::new(&store, &target.server);
    let mut cells = MatrixRow::new("longhaul cp, ssh with a host on the way");
    rows::get_and_put(
        &mut cells,
        &server,
        &["--ssh", &jump],
        &test_files::FEW_SIZES,
    );
    rows::trees(
        &mut cells,
        &server,
        &TestTree::generate(40, ASCII),
        &["--ssh", &jump],
    );
    cells.finish();
    assert_eq!(gate.logins(), target.logins());
}

#[test]
fn servers_that_permit_one_session_or_login_at_a_time_are_enough() {
    require!(sshd::find());
    for settings in ["MaxSessions 1", "MaxStartups 1"] {
        for is_closed in [false, true] {
            // A login that is begun while another one is, is refused now and then: it is tried again.
            let store = TestStore::new().unwrap();
            let sshd = match is_closed {
                false => sshd::start(&store, settings).unwrap(),
                true => start_closed(&store, settings),
            };
            let server = ServerUnderTest::new(&store, &sshd.server);
            let mut cells = MatrixRow::new(format!("longhaul cp, {settings}, closed: {is_closed}"));
            let options = ["--ssh", &sshd.ssh, "-p", "4"];
            rows::get_and_put(&mut cells, &server, &options, &[20_000_000]);
            cells.finish();
        }
    }
}
