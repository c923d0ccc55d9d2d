//! A server for the tests of a copy.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that lets anybody in; it ends with the test.
pub(crate) struct ServedRoot {
    child: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl ServedRoot {
    /// `rights`: "ro" or "rw".
    pub(crate) fn start(root: &Path, rights: &str) -> Self {
        Self::start_at("127.0.0.1:0", root, rights)
    }

    pub(crate) fn start_at(listen: &str, root: &Path, rights: &str) -> Self {
        Self::start_with(listen, root, rights, &[])
    }

    pub(crate) fn start_with(listen: &str, root: &Path, rights: &str, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["serve", "--listen", listen, "--anonymous", rights])
            .arg("--root")
            .arg(root)
            .args(flags)
            .env_remove("RUST_LOG")
            .env("LONGHAUL_CONFIG", "off")
            .env("LONGHAUL_HISTORY", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for ServedRoot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
