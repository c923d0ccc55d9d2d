//! `--limit-rate` between two servers, whose bytes do not pass through this machine.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::process::Command;

mod served;

use served::ServedRoot;

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .env("LONGHAUL_CONFIG", "off")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused_and_one_of_the_settings_is_left_out_with_a_warning() {
    let scratch = tempfile::tempdir().unwrap();
    let roots = ["a", "b"].map(|name| scratch.path().join(name));
    roots
        .iter()
        .for_each(|root| fs::create_dir_all(root).unwrap());
    fs::create_dir(roots[0].join("d")).unwrap();
    fs::write(roots[0].join("d/f"), "data").unwrap();
    let servers = roots.each_ref().map(|root| ServedRoot::start(root, "rw"));
    let urls = servers
        .each_ref()
        .map(|server| format!("ftp://{}/d", server.address));
    let list = scratch.path().join("list");
    fs::write(&list, format!("{0}/f {1}/g\n", urls[0], urls[1])).unwrap();
    let list = list.to_str().unwrap();
    let file = [
        format!("{}/f", urls[0]),
        format!("ftp://{}/h", servers[1].address),
    ];
    let [copied, synced] = [&file, &urls].map(|[from, to]| [from.as_str(), to.as_str()]);
    for words in [
        [&["cp"][..], &copied].concat(),
        [&["sync"][..], &synced].concat(),
        vec!["cp", "--from", list],
    ] {
        let limited = longhaul(&words)
            .args(["--limit-rate", "80M"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&limited.stderr);
        assert_eq!(limited.status.code(), Some(2), "{words:?}: {text}");
        assert!(
            text.contains("--limit-rate cannot be applied"),
            "{words:?}: {text}"
        );
        let by_default = longhaul(&words)
            .env("LONGHAUL_LIMIT_RATE", "80M")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&by_default.stderr);
        assert_eq!(by_default.status.code(), Some(0), "{words:?}: {text}");
        assert!(
            text.contains("warning: the limit-rate of the settings"),
            "{words:?}: {text}"
        );
    }
    for name in ["d/f", "d/g", "h"] {
        let copied = fs::read_to_string(roots[1].join(name));
        assert_eq!(copied.unwrap(), "data");
    }
}
