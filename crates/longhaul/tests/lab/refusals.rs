//! Bad input: one line that says what is wrong, and the contract's exit code.

use std::process::Output;

use crate::harness::{LONGHAUL, LabTestGuard, directory, longhaul, stderr};

/// Fails unless the program ended with this code and one line that has all of these words.
pub(crate) fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("longhaul lab: "), "{told}");
    for word in words {
        assert!(told.contains(word), "'{word}' is not in: {told}");
    }
    assert!(output.stdout.is_empty());
}

fn net(options: &[&str]) -> Output {
    let mut arguments = vec!["lab", "net", "--wait"];
    arguments.extend(options);
    arguments.extend(["--", "true"]);
    longhaul(&arguments)
}

#[test]
fn impossible_paths() {
    for (options, words) in [
        (["--rate", "0"], ["--rate", "0"]),
        (["--rate", "fast"], ["--rate", "'fast'"]),
        (["--rate", "100"], ["--rate", "100mbit"]),
        (["--loss", "101%"], ["--loss", "101%"]),
        (["--loss", "2"], ["--loss", "2"]),
        (["--rtt", "2h"], ["--rtt", "2 h 0 min"]),
        (["--queue", "0"], ["--queue", "nothing"]),
        (["--queue", "1bdp"], ["queue", "rate"]),
        (["--sysctl", "net.ipv4.tcp_sack"], ["--sysctl", "tcp_sack"]),
        (["--sysctl", "kernel.panic=1"], ["sysctl", "kernel.panic"]),
    ] {
        assert_refused(&net(&options), 2, &words);
    }
}

#[test]
fn files_that_are_missing() {
    for option in ["--topology", "--trace"] {
        let output = net(&[option, "/nowhere/file"]);
        assert_refused(&output, 4, &["/nowhere/file"]);
    }
}

#[test]
fn files_with_mistakes() {
    let directory = directory();
    let file = directory.path().join("file");
    let name = file.to_str().unwrap();
    for (option, text, words) in [
        ("--topology", "seed = 1\nspede = 2\n", ["line 2", "spede"]),
        (
            "--topology",
            "[default]\nrtt = \"1ms\"\nloss = \"101%\"\n",
            ["line 3", "101%"],
        ),
        (
            "--topology",
            "[[paths]]\nbetween = [\"a\", \"z\"]\n",
            ["line 2", "z"],
        ),
        ("--topology", "this is no TOML", ["line 1", "file"]),
        (
            "--trace",
            "seconds,rate\n0,1mbit\n5,2mbit\n4,3mbit\n",
            ["line 4", "forward"],
        ),
        ("--trace", "seconds,speed\n0,1mbit\n", ["line 1", "speed"]),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_refused(&net(&[option, name]), 2, &words);
    }
}

#[test]
fn an_unknown_congestion_control() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_refused(&net(&["--cc", "warp"]), 2, &["'warp'", "reno"]);
}

#[test]
fn an_unknown_kernel_setting() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let output = net(&["--sysctl", "net.ipv4.tcp_warp=1"]);
    assert_refused(&output, 2, &["net.ipv4.tcp_warp"]);
    let output = net(&["--sysctl", "net.ipv4.tcp_sack=many"]);
    assert_refused(&output, 2, &["net.ipv4.tcp_sack", "'many'"]);
    let output = net(&["--sysctl", "net.core.rmem_max=many"]);
    assert_refused(&output, 2, &["net.core.rmem_max", "'many'"]);
}

#[test]
fn a_report_that_cannot_be_written_costs_no_run() {
    let output = net(&["--report", "/nowhere/report.json"]);
    assert_refused(&output, 7, &["/nowhere/report.json"]);
}

#[test]
fn no_command() {
    for arguments in [&["lab", "net"][..], &["lab", "net", "--rtt", "1ms", "--"]] {
        assert_eq!(longhaul(arguments).status.code(), Some(2));
    }
}

#[test]
fn exec_outside_a_lab() {
    let output = longhaul(&["lab", "exec", "a", "--", "true"]);
    assert_refused(&output, 2, &["inside a lab", "lab net"]);
}

#[test]
fn init_is_not_for_users() {
    let output = longhaul(&["lab", "init", "{}", "true"]);
    assert_refused(&output, 2, &["lab net"]);
}

#[test]
fn exec_on_a_host_that_is_not_there() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let output = quiet(&[LONGHAUL, "lab", "exec", "z", "--", "true"]);
    assert_refused(&output, 2, &["'z'", "a, b"]);
}

/// Such short runs are not judged.
fn quiet(command: &[&str]) -> Output {
    let mut arguments = vec!["lab", "net", "--wait", "--quiet", "--"];
    arguments.extend(command);
    longhaul(&arguments)
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_eq!(quiet(&["true"]).status.code(), Some(0));
    assert_eq!(quiet(&["sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(
        quiet(&["sh", "-c", "kill -TERM $$"]).status.code(),
        Some(143)
    );
}

#[test]
fn commands_that_do_not_start() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_refused(&quiet(&["/no/such"]), 127, &["/no/such"]);
    assert_refused(&quiet(&["/etc/passwd"]), 126, &["/etc/passwd"]);
    for (program, code) in [("/no/such", 127), ("/etc/passwd", 126)] {
        let on_a_host = quiet(&[LONGHAUL, "lab", "exec", "a", "--", program]);
        assert_refused(&on_a_host, code, &[program]);
    }
}

#[test]
fn a_lab_in_a_lab() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let output = quiet(&[LONGHAUL, "lab", "net", "--", "true"]);
    assert_refused(&output, 7, &["inside a lab"]);
}
