//! Names of files that are not UTF-8, on the command line and on the way.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// `caf` and an e with an acute accent in Latin-1, and a byte that no character begins with.
const NAME: &[u8] = b"caf\xe9 100%\xff.dat";
const CONTENT: &[u8] = b"content";

struct AnyBytesServer(Child, String);

impl Drop for AnyBytesServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env_remove("RUST_LOG")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

fn serve(root: &Path) -> AnyBytesServer {
    let mut server = longhaul()
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--anonymous",
            "rw",
            "--history",
            "off",
            "--root",
        ])
        .arg(root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let address = ready
        .trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_owned();
    AnyBytesServer(server, format!("ftp://{address}/"))
}

fn run(directory: &Path, arguments: &[&OsStr]) -> Output {
    let output = longhaul().args(arguments).current_dir(directory).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn join(before: &str, name: &[u8]) -> OsString {
    OsString::from_vec([before.as_bytes(), name].concat())
}

#[test]
fn a_name_that_is_not_utf8_works_in_every_kind_of_argument() {
    let (root, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(root.path());
    let (name, cp) = (OsStr::from_bytes(NAME), OsStr::new("cp"));
    std::fs::write(here.path().join(name), CONTENT).unwrap();
    // In a URL a percent sign begins an escape.
    let percent = NAME.iter().position(|b| *b == b'%').unwrap();
    let in_url = [&NAME[..percent], b"%25", &NAME[percent + 1..]].concat();
    let raw_url = join(&server.1, &in_url);
    let encoded_url = OsString::from(format!("{}caf%E9%20100%25%FF.dat", server.1));

    run(here.path(), &[cp, name, &raw_url]);
    assert_eq!(std::fs::read(root.path().join(name)).unwrap(), CONTENT);

    run(here.path(), &[cp, &encoded_url, &join("./back-", NAME)]);
    let back = here.path().join(join("back-", NAME));
    assert_eq!(std::fs::read(&back).unwrap(), CONTENT);

    let file_url = join(&format!("file://{}/", here.path().display()), &in_url);
    run(here.path(), &[cp, &file_url, &join("local-", NAME)]);
    assert!(here.path().join(join("local-", NAME)).exists());

    let (ls, json) = (OsStr::new("ls"), OsStr::new("--json"));
    let pattern = OsString::from(format!("{}*.dat", server.1));
    let listed = run(here.path(), &[ls, &pattern]).stdout;
    assert_eq!(listed, [NAME, b"\n"].concat());
    let line = String::from_utf8(run(here.path(), &[ls, json, &raw_url]).stdout).unwrap();
    assert!(
        line.contains(r#""url_name":"caf%E9%20100%25%FF.dat""#),
        "{line}"
    );

    let sum = run(here.path(), &[OsStr::new("cksum"), name]).stdout;
    let remote_sum = run(here.path(), &[OsStr::new("cksum"), &raw_url]).stdout;
    assert_eq!(sum[..64], remote_sum[..64]);

    let list = here.path().join(OsStr::from_bytes(b"list\xff"));
    let line = [b"\"", raw_url.as_bytes(), b"\" listed\n"].concat();
    std::fs::write(&list, line).unwrap();
    run(here.path(), &[cp, OsStr::new("--from"), list.as_os_str()]);
    assert_eq!(std::fs::read(here.path().join("listed")).unwrap(), CONTENT);

    let moved = join(&server.1, b"moved\xfe");
    run(here.path(), &[OsStr::new("mv"), &raw_url, &moved]);
    run(here.path(), &[OsStr::new("stat"), &moved]);
    run(here.path(), &[OsStr::new("rm"), &moved]);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_with_such_names_is_synchronised() {
    let (root, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(root.path());
    let directory = OsStr::from_bytes(b"d\xff");
    let tree = here.path().join(directory);
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join(OsStr::from_bytes(NAME)), CONTENT).unwrap();
    run(
        here.path(),
        &[OsStr::new("sync"), directory, &join(&server.1, b"t\xfe")],
    );
    let stored = root
        .path()
        .join(OsStr::from_bytes(b"t\xfe"))
        .join(OsStr::from_bytes(NAME));
    assert_eq!(std::fs::read(stored).unwrap(), CONTENT);
    let tree = join(&server.1, b"t\xfe");
    run(here.path(), &[OsStr::new("rm"), OsStr::new("-r"), &tree]);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}
