//! Invalid input: one line of error message and the documented exit code.

use std::process::Output;

use crate::harness::{LONGHAUL_LAB, LabTestGuard, directory, lab, stderr};

/// Fails unless the program ended with this exit code and one line that contains all of these words.
pub(crate) fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("longhaul lab: "), "{message}");
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    assert!(output.stdout.is_empty());
}

fn net(options: &[&str]) -> Output {
    let mut arguments = vec!["net", "--wait"];
    arguments.extend(options);
    arguments.extend(["--", "true"]);
    lab(&arguments)
}

#[test]
fn invalid_path_options_exit_with_2() {
    for (options, words) in [
        (["--rate", "0"], ["--rate", "0"]),
        (["--rate", "fast"], ["--rate", "'fast'"]),
        (["--rate", "100"], ["--rate", "100mbit"]),
        (["--loss", "101%"], ["--loss", "101%"]),
        (["--loss", "2"], ["--loss", "2"]),
        (["--rtt", "2h"], ["--rtt", "2 h 0 min"]),
        (["--queue", "0"], ["--queue", "a queue of 0"]),
        (["--queue", "1bdp"], ["queue", "rate"]),
        (["--sysctl", "net.ipv4.tcp_sack"], ["--sysctl", "tcp_sack"]),
        (["--sysctl", "kernel.panic=1"], ["sysctl", "kernel.panic"]),
    ] {
        assert_refused(&net(&options), 2, &words);
    }
}

#[test]
fn missing_files_exit_with_4() {
    for option in ["--topology", "--trace"] {
        let output = net(&[option, "/nowhere/file"]);
        assert_refused(&output, 4, &["/nowhere/file"]);
    }
}

#[test]
fn invalid_files_exit_with_2_and_name_the_line() {
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
            ["line 4", "increase"],
        ),
        ("--trace", "seconds,speed\n0,1mbit\n", ["line 1", "speed"]),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_refused(&net(&[option, name]), 2, &words);
    }
}

#[test]
fn an_unknown_congestion_control_exits_with_2() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_refused(&net(&["--cc", "warp"]), 2, &["'warp'", "reno"]);
}

#[test]
fn an_unknown_or_invalid_kernel_setting_exits_with_2() {
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
fn an_unwritable_report_is_refused_before_the_run() {
    let output = net(&["--report", "/nowhere/report.json"]);
    assert_refused(&output, 7, &["/nowhere/report.json"]);
}

#[test]
fn a_missing_command_exits_with_2() {
    for arguments in [&["net"][..], &["net", "--rtt", "1ms", "--"]] {
        assert_eq!(lab(arguments).status.code(), Some(2));
    }
}

#[test]
fn exec_outside_a_lab_exits_with_2() {
    let output = lab(&["exec", "a", "--", "true"]);
    assert_refused(&output, 2, &["inside a lab", "lab net"]);
}

#[test]
fn init_by_a_user_exits_with_2() {
    let output = lab(&["init", "{}", "true"]);
    assert_refused(&output, 2, &["lab net"]);
}

#[test]
fn exec_on_an_unknown_host_exits_with_2() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let output = quiet(&[LONGHAUL_LAB, "exec", "z", "--", "true"]);
    assert_refused(&output, 2, &["'z'", "a, b"]);
}

/// Runs `lab net --quiet`. Runs this short are never invalid.
fn quiet(command: &[&str]) -> Output {
    let mut arguments = vec!["net", "--wait", "--quiet", "--"];
    arguments.extend(command);
    lab(&arguments)
}

#[test]
fn the_exit_code_is_that_of_the_command() {
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
fn commands_that_cannot_start_exit_with_126_or_127() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_refused(&quiet(&["/no/such"]), 127, &["/no/such"]);
    assert_refused(&quiet(&["/etc/passwd"]), 126, &["/etc/passwd"]);
    for (program, code) in [("/no/such", 127), ("/etc/passwd", 126)] {
        let on_a_host = quiet(&[LONGHAUL_LAB, "exec", "a", "--", program]);
        assert_refused(&on_a_host, code, &[program]);
    }
}

#[test]
fn a_lab_inside_a_lab_exits_with_7() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let output = quiet(&[LONGHAUL_LAB, "net", "--", "true"]);
    assert_refused(&output, 7, &["inside a lab"]);
}
