//! The command: its exit code, its environment, its programs on the hosts.

use super::support::{cannot_run, lab, script, stderr, stdout};

#[test]
fn the_commands_exit_code_is_the_labs() {
    if cannot_run() {
        return;
    }
    for (command, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        assert_eq!(script(&[], command).status.code(), Some(code), "{command}");
    }
}

#[test]
fn a_command_that_does_not_start_is_told_as_a_shell_does() {
    if cannot_run() {
        return;
    }
    let missing = lab(&[], &["/nowhere/program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("/nowhere/program: no such program"));
    let no_program = lab(&[], &["/etc/passwd"]).output().unwrap();
    assert_eq!(no_program.status.code(), Some(126));
    assert!(stderr(&no_program).contains("/etc/passwd cannot be executed"));
}

#[test]
fn the_environment_names_the_hosts() {
    if cannot_run() {
        return;
    }
    let told = script(&[], "echo $LAB_A $LAB_B, $LAB_HOSTS, $LAB_PROGRAM");
    let program = super::support::program();
    assert_eq!(
        stdout(&told),
        format!("10.99.0.1 10.99.0.2, a b, {}", program.display())
    );
}

#[test]
fn exec_is_on_the_host_and_the_command_is_not() {
    if cannot_run() {
        return;
    }
    let told = script(
        &[],
        "for h in a b; do $LAB_PROGRAM lab exec $h -- cat /proc/net/fib_trie | grep -c 10.99.0.
         $LAB_PROGRAM lab exec $h -- readlink /proc/self/ns/net; done
         readlink /proc/self/ns/net; grep -c lab0 /proc/net/dev",
    );
    let lines: Vec<String> = stdout(&told).lines().map(str::to_owned).collect();
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(lines.len(), 6, "{lines:?} {}", stderr(&told));
    assert_ne!(lines[1], lines[3]);
    assert_eq!(lines[4], outside.to_string_lossy());
    assert_eq!(lines[5], "0");
    assert!(lines[0] != "0" && lines[2] != "0", "{lines:?}");
}

#[test]
fn exec_tells_what_is_wrong() {
    if cannot_run() {
        return;
    }
    let told = script(
        &[],
        "$LAB_PROGRAM lab exec a -- sh -c 'exit 5'; echo $?
         $LAB_PROGRAM lab exec a -- /nowhere/program; echo $?
         $LAB_PROGRAM lab exec a -- /etc/passwd; echo $?
         $LAB_PROGRAM lab exec z -- true; echo $?",
    );
    assert_eq!(stdout(&told), "5\n127\n126\n2");
    assert!(stderr(&told).contains("no host 'z' in this lab; there are a, b"));
}

#[test]
fn the_commands_processes_see_only_each_other() {
    if cannot_run() {
        return;
    }
    let told = script(&[], "echo $$; ls -d /proc/[0-9]* | wc -l");
    let lines: Vec<u32> = stdout(&told)
        .lines()
        .filter_map(|l| l.parse().ok())
        .collect();
    // Where /proc cannot be replaced, numbers are the outer ones.
    if lines[0] < 10 {
        assert!(lines[1] < 10, "{lines:?}");
    }
}

#[test]
fn packets_are_counted_and_reported() {
    if cannot_run() {
        return;
    }
    let told = script(
        &[],
        "$LAB_PROGRAM lab exec a -- bash -c 'echo x > /dev/udp/'$LAB_B'/9'; sleep 0.2",
    );
    let report = stderr(&told);
    assert!(report.contains("a to b: 1 packets (30 B) in"), "{report}");
    assert!(report.contains("network up for"), "{report}");
}
