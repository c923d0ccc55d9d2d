//! Corruption that TCP does not detect, and `longhaul cp` does.

use crate::harness::{LabTestGuard, TestLab};
use crate::server;

#[test]
fn tcp_delivers_corrupted_bytes_without_checksum_errors() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let bytes = 4_000_000;
    let run = TestLab::topology(
        &turn,
        "[default]\nrate = \"100mbit\"\n[default.forward]\ncorrupt = \"2%\"\n",
    )
    .run(&format!(
        "probe b tcp-receive & probe a tcp-send $LAB_B {bytes}; wait $!
             on b grep ^Tcp: /proc/net/snmp > snmp"
    ));
    let received = run.received();
    let corrupted = run.direction("a", "b").corrupted;
    assert_eq!(received.bytes, bytes);
    assert!(received.wrong > 0);
    // Each corruption changes one byte; some corrupted packets were unnecessary retransmissions.
    assert!(
        received.wrong <= corrupted,
        "{} wrong bytes of {corrupted} changes",
        received.wrong
    );
    assert!(received.wrong >= corrupted * 9 / 10);
    assert_eq!(checksum_errors(&run.text("snmp")), 0);
}

/// `InCsumErrors` of TCP in `/proc/net/snmp`: a line of names, then a line of values.
fn checksum_errors(snmp: &str) -> u64 {
    let mut lines = snmp.lines();
    let names = lines.next().unwrap().split(' ');
    let values = lines.next().unwrap().split(' ');
    let (_, value) = names
        .zip(values)
        .find(|(name, _)| *name == "InCsumErrors")
        .unwrap();
    value.parse().unwrap()
}

/// Corruption only between the servers; the client's control connections are not affected.
const DAMAGED: &str = "
[hosts.a]
[hosts.b]
[hosts.c]
[[paths]]
between = [\"b\", \"c\"]
rate = \"100mbit\"
forward.corrupt = \"20%\"
";

#[test]
fn a_verified_copy_with_corrupted_data_fails_and_leaves_no_file() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::topology(&turn, DAMAGED)
        .file("longhaul.sh", server::SCRIPT)
        .run(
            r#". ./longhaul.sh
            head -c 200000 /dev/urandom > from.dat
            serve b "$PWD"; serve c "$PWD"
            copy() { code=0; on a "$LONGHAUL" cp --json "$@" > log 2>&1 || code=$?; cat log >> logs; }
            : > verified
            for n in 1 2 3 4; do
                copy ftp://$USER@$B/from.dat ftp://$USER@$C/verified$n.dat
                echo $code >> verified
            done
            copy --verify none ftp://$USER@$B/from.dat ftp://$USER@$C/unverified.dat
            echo $code > unverified"#,
        );
    let logs = run.text("logs");
    let sent = std::fs::read(run.path("from.dat")).unwrap();
    let differs = |name: &str| std::fs::read(run.path(name)).is_ok_and(|found| found != sent);
    // Without verification the corrupted file gets its final name.
    assert_eq!(run.text("unverified").trim(), "0", "{logs}");
    assert!(differs("unverified.dat"), "the path corrupted nothing");
    // With verification it does not. 200 kB are 139 packets, so every copy is corrupted.
    for (n, code) in (1..).zip(run.text("verified").lines()) {
        assert_eq!(code, "6", "copy {n}:\n{logs}");
        let name = format!("verified{n}.dat");
        assert!(!run.path(&name).exists(), "{name} exists:\n{logs}");
    }
    assert!(run.direction("b", "c").corrupted > 0);
}

/// Here the control connection is corrupted as well. The copy may fail, but must not report success for
/// corrupted data. (`--verify crc32c` is explicit, because a corrupted FEAT reply may lack the algorithm,
/// and `auto` would then skip it.)
#[test]
fn success_means_correct_data_even_if_the_control_connection_is_corrupted() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::topology(
        &turn,
        "[default]\nrate = \"100mbit\"\n[default.back]\ncorrupt = \"1%\"\n",
    )
    .file("longhaul.sh", server::SCRIPT)
    .run(
        r#". ./longhaul.sh
        head -c 300000 /dev/urandom > from.dat
        serve b "$PWD"
        : > codes
        for n in 1 2 3 4; do
            code=0
            on a "$LONGHAUL" cp --json --timeout 1 --retries 1 --verify crc32c \
                ftp://$USER@$B/from.dat to$n.dat > log$n 2>&1 || code=$?
            echo $code >> codes
        done"#,
    );
    let sent = std::fs::read(run.path("from.dat")).unwrap();
    let codes = run.text("codes");
    for (n, code) in (1..).zip(codes.lines()) {
        let log = run.text(&format!("log{n}"));
        let name = format!("to{n}.dat");
        if code == "0" {
            let same = std::fs::read(run.path(&name)).unwrap() == sent;
            assert!(same, "{name} is wrong:\n{log}");
        } else {
            assert!(!run.path(&name).exists(), "{name} exists:\n{log}");
        }
    }
    // Each copy has 207 data packets, of which one in a hundred is corrupted: about one copy in eight
    // is not corrupted.
    assert!(codes.lines().any(|code| code != "0"), "{codes}");
}
