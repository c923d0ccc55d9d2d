//! `longhaul serve --import` with the settings files that Debian's packages of other servers bring.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use interop::longhaul::binary::longhaul;
use interop::peer::find_unpacked_file;
use interop::require;
use interop::run;
use interop::scratch::ScratchFolder;

/// Keys of what this host need not have: certificates, accounts and rules of PAM.
const OF_OTHER_HOSTS: [&str; 9] = [
    "cert",
    "key",
    "client-ca",
    "client-certs",
    "gridmap",
    "pam",
    "pam-min-uid",
    "pam-rights",
    "tls-session-reuse",
];

fn import(path: &Path) -> Result<String> {
    let mut command = longhaul()?;
    command.args(["serve", "--import"]).arg(path);
    Ok(run::run(&mut command)?.expect_success()?.stdout_text())
}

/// Imports a file, and checks that no line is lost, that all directives are known, and that the server could start.
fn expect_usable(path: &Path) -> Result<String> {
    let settings = import(path)?;
    ensure!(!settings.contains("not known here"), "{settings}");
    if path.is_file() {
        let bytes = std::fs::read(path)?;
        let text = String::from_utf8_lossy(&bytes);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let is_set = !line.is_empty() && !line.starts_with(['#', '<']);
            let origin = format!("line {}: ", index + 1);
            ensure!(!is_set || settings.contains(&origin), "{line}: {settings}");
        }
    }
    let host = ScratchFolder::new()?;
    let root = host.folder("root")?;
    let mut adapted = String::from("anonymous = \"ro\"\n");
    for line in settings.lines() {
        let key = line.split(" = ").next().unwrap_or_default();
        match key {
            "anonymous" | "run-as" => {}
            key if OF_OTHER_HOSTS.contains(&key) => {}
            "tls" | "require-protection" => {}
            "root" => adapted.push_str(&format!("root = {root:?}\n")),
            "transfer-log" | "ftp-info-log" => {
                adapted.push_str(&format!("{key} = {:?}\n", host.join("log")));
            }
            _ => {
                adapted.push_str(line);
                adapted.push('\n');
            }
        }
    }
    let file = host.file("serve.toml", adapted.as_bytes())?;
    let mut check = longhaul()?;
    check.args(["serve", "--check", "--config"]).arg(file);
    run::run(&mut check)?
        .expect_success()
        .with_context(|| adapted)?;
    Ok(settings)
}

/// A file with the lines of another one that are settings without their `#`.
fn uncommented(host: &ScratchFolder, path: &Path, is_setting: fn(&str) -> bool) -> Result<PathBuf> {
    let bytes = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut switched_on = String::new();
    for line in text.lines() {
        let inner = line.strip_prefix('#').map(str::trim_start);
        let inner = inner.filter(|inner| is_setting(inner));
        switched_on.push_str(inner.unwrap_or(line));
        switched_on.push('\n');
    }
    host.file("switched-on", switched_on.as_bytes())
}

fn is_assignment(line: &str) -> bool {
    let is_name = |name: &str| {
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
    };
    line.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// A name and at least two spaces: Pure-FTPd's file is a table.
fn is_table_line(line: &str) -> bool {
    let name = line.split(' ').next().unwrap_or_default();
    let rest = &line[name.len()..];
    name.bytes().all(|b| b.is_ascii_alphanumeric()) && rest.starts_with("  ")
}

fn is_of_tls(line: &str) -> bool {
    line.starts_with("TLS")
}

#[test]
fn vsftpd_conf_of_debian() {
    let path = require!(find_unpacked_file("vsftpd", "etc/vsftpd.conf"));
    let settings = expect_usable(&path).unwrap();
    for expected in [
        "(vsftpd)",
        "listen = \"[::]:21\"",
        "pam = \"vsftpd\"",
        "pam-rights = \"ro\"",
    ] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    let host = ScratchFolder::new().unwrap();
    let all = uncommented(&host, &path, is_assignment).unwrap();
    assert!(expect_usable(&all).unwrap().contains("umask = \"022\""));
    for example in ["INTERNET_SITE", "INTERNET_SITE_NOINETD", "VIRTUAL_USERS"] {
        let file = format!("usr/share/doc/vsftpd/examples/{example}/vsftpd.conf");
        let path = require!(find_unpacked_file("vsftpd", &file));
        expect_usable(&path).unwrap();
    }
}

#[test]
fn proftpd_conf_of_debian() {
    let templates = "usr/share/proftpd/templates";
    let file = |name: &str| find_unpacked_file("proftpd-core", &format!("{templates}/{name}"));
    let settings = expect_usable(&require!(file("proftpd.conf"))).unwrap();
    for expected in [
        "(proftpd)",
        "listen = \"[::]:21\"",
        "run-as = \"proftpd\"",
        "umask = \"022\"",
        "max-sessions = 30",
    ] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    let host = ScratchFolder::new().unwrap();
    let tls = uncommented(&host, &require!(file("tls.conf")), is_of_tls).unwrap();
    let settings = expect_usable(&tls).unwrap();
    assert!(
        settings.contains("cert = \"/etc/ssl/certs/proftpd.crt\""),
        "{settings}"
    );
    for sample in ["basic", "anonymous", "virtual"] {
        let file = format!("usr/share/doc/proftpd-core/sample-configurations/{sample}.conf");
        let path = require!(find_unpacked_file("proftpd-core", &file));
        expect_usable(&path).unwrap();
    }
}

#[test]
fn pure_ftpd_conf_of_debian() {
    let directory = require!(find_unpacked_file("pure-ftpd-common", "etc/pure-ftpd/conf"));
    let settings = expect_usable(&directory).unwrap();
    for expected in [
        "(pure-ftpd)",
        "pam = \"pure-ftpd\"",
        "pam-min-uid = 1000",
        "pureftpd.pdb",
    ] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    let path = require!(find_unpacked_file(
        "pure-ftpd-common",
        "etc/pure-ftpd/pure-ftpd.conf"
    ));
    let settings = expect_usable(&path).unwrap();
    for expected in [
        "max-sessions = 50",
        "idle-timeout = 900",
        "file-mode = \"644\"",
    ] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    let host = ScratchFolder::new().unwrap();
    let all = uncommented(&host, &path, is_table_line).unwrap();
    assert!(expect_usable(&all).unwrap().contains("quota = \"10Mi\""));
}

#[test]
fn gridftp_conf_of_debian() {
    let path = PathBuf::from("/etc/gridftp.conf");
    let is_there = path.is_file().then_some(path);
    let path =
        require!(is_there.ok_or(
            "globus-gridftp-server-progs is not installed; run tests/install-peers".to_owned()
        ));
    let settings = expect_usable(&path).unwrap();
    for expected in [
        "(globus-gridftp-server)",
        "listen = \"[::]:2811\"",
        "gridmap = \"/etc/grid-security/grid-mapfile\"",
    ] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    let host = ScratchFolder::new().unwrap();
    let all = uncommented(&host, &path, |line| line.starts_with("$GLOBUS")).unwrap();
    assert!(
        expect_usable(&all)
            .unwrap()
            .contains("data-ports = \"50000-51000\"")
    );
}
