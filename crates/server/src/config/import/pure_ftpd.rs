//! Directives of Pure-FTPd 1.0 (pure-ftpd.conf, and the files of Debian's /etc/pure-ftpd/conf).

use std::net::{IpAddr, SocketAddr};

use super::directives::{ForeignDirective, last};
use super::rule::ImportOutcome::{Comment as Says, Key};
use super::rule::ImportRule::{Combined, Comment, Switch, Value};
use super::rule::ValueForm::{Count, File, Ipv4, Minutes, Ports};
use super::rule::{ANONYMOUS_RATE, ImportOutcome, ImportRule, decide, missing, mode, rate, same};
use super::translation::{Translation, quoted};

const DATABASES: ImportRule = Comment(decide(
    "accounts are in the users file (longhaul user add --root DIR NAME); passwords cannot be taken over",
));
/// Directives that bring accounts beside those of the system.
const DATABASE_DIRECTIVES: &[&str] = &[
    "ExtAuth",
    "LDAPConfigFile",
    "MySQLConfigFile",
    "PGSQLConfigFile",
    "PureDB",
];
const OFF: ImportOutcome = Says(same("nothing is done"));
const RATIO: ImportRule = Comment(missing("ratios of uploads and downloads"));
const DOT_FILES: ImportRule = Switch(
    Says(missing(
        "rule for names that begin with a dot; use permissions of the file system",
    )),
    OFF,
);
const LOGS: ImportRule = Comment(same(
    "messages go to the journal, and transfers to transfer-log",
));
const CIPHERS: ImportRule = Comment(same(
    "TLS 1.2 and 1.3, with ciphers of the system's OpenSSL",
));
const CHARSETS: ImportRule = Comment(same("names are bytes, and shown as they are"));

/// How each directive maps.
pub(super) const TABLE: &[(&str, ImportRule)] = &[
    (
        "AllowAnonymousFXP",
        Switch(
            Says(missing("third-party transfers of anonymous sessions")),
            Says(same(
                "anonymous sessions have data connections with their client only",
            )),
        ),
    ),
    ("AllowDotFiles", DOT_FILES),
    (
        "AllowUserFXP",
        Switch(
            Says(same(
                "users may name another host for data connections (third-party)",
            )),
            Key("third-party", "\"none\""),
        ),
    ),
    ("AltLog", Combined),
    ("AnonymousBandwidth", Combined),
    (
        "AnonymousCanCreateDirs",
        Switch(
            Says(decide("anonymous = \"rw\" permits it, and everything else")),
            OFF,
        ),
    ),
    ("AnonymousCantUpload", Combined),
    ("AnonymousOnly", Combined),
    ("AnonymousRatio", RATIO),
    (
        "AntiWarez",
        Switch(
            Says(missing(
                "files that were uploaded and are not shown yet; use file-mode and the group of the directory",
            )),
            OFF,
        ),
    ),
    (
        "AutoRename",
        Switch(
            Says(missing(
                "new names for uploads whose name exists: an upload replaces the file",
            )),
            Says(same("an upload replaces the file")),
        ),
    ),
    ("Bind", Combined),
    (
        "BrokenClientsCompatibility",
        Comment(same("nothing is done for broken clients")),
    ),
    (
        "CallUploadScript",
        Switch(
            Says(missing(
                "programs that run after an upload; follow transfer-log instead",
            )),
            OFF,
        ),
    ),
    ("CertFile", Combined),
    ("CertFileAndKey", Combined),
    (
        "ChrootEveryone",
        Comment(same("nobody can leave the root of the account")),
    ),
    ("ClientCharset", CHARSETS),
    (
        "CreateHomeDir",
        Switch(
            Says(missing(
                "directories made at the login; make them with: install -d -o ACCOUNT DIR",
            )),
            OFF,
        ),
    ),
    (
        "CustomerProof",
        Switch(Says(missing("refusal of unwise modes in SITE CHMOD")), OFF),
    ),
    (
        "Daemonize",
        Comment(same("the server runs in the foreground; systemd starts it")),
    ),
    (
        "DisplayDotFiles",
        Switch(
            Says(same("listings show names that begin with a dot")),
            Says(missing("hiding of names that begin with a dot")),
        ),
    ),
    (
        "DontResolve",
        Comment(same("names of clients are not looked up")),
    ),
    ("ExtAuth", DATABASES),
    (
        "ExtCert",
        Comment(missing(
            "certificates from a program; SIGHUP reads cert and key again",
        )),
    ),
    ("FSCharset", CHARSETS),
    ("ForcePassiveIP", Value("public-address", Ipv4)),
    (
        "FortunesFile",
        Comment(missing("fortune cookies; welcome-file is one text")),
    ),
    ("IPV4Only", Combined),
    (
        "IPV6Only",
        Switch(
            Says(decide("[::] serves IPv4, too; bind an IPv6 address")),
            OFF,
        ),
    ),
    (
        "Include",
        Comment(decide("translate that file, too, and put both together")),
    ),
    (
        "KeepAllFiles",
        Switch(
            Says(missing(
                "accounts that may store and not delete, but for tokens (storage.create)",
            )),
            OFF,
        ),
    ),
    (
        "LDAPConfigFile",
        Comment(decide(
            "pam asks LDAP where the system does (pam_ldap, SSSD)",
        )),
    ),
    (
        "LimitRecursion",
        Comment(same(
            "listings are bounded by memory and time, not by entries",
        )),
    ),
    ("LogPID", LOGS),
    ("MaxClientsNumber", Value("max-sessions", Count)),
    ("MaxClientsPerIP", Value("max-sessions-per-address", Count)),
    (
        "MaxDiskUsage",
        Comment(decide(
            "quota bounds what the root may hold, in bytes and not in percent of the disk",
        )),
    ),
    ("MaxIdleTime", Value("idle-timeout", Minutes)),
    (
        "MaxLoad",
        Comment(missing(
            "refusals by the load of the system; queues and limit-rate bound the work",
        )),
    ),
    ("MinUID", Value("pam-min-uid", Count)),
    ("MySQLConfigFile", DATABASES),
    (
        "NATmode",
        Comment(same(
            "clients behind NAT need nothing; for the server see public-address",
        )),
    ),
    ("NoAnonymous", Combined),
    (
        "NoChmod",
        Switch(
            Says(missing(
                "switch for SITE CHMOD; it is for those who may write",
            )),
            Says(same("SITE CHMOD is for those who may write")),
        ),
    ),
    (
        "NoRename",
        Switch(Says(missing("accounts that may store and not rename")), OFF),
    ),
    (
        "NoTruncate",
        Switch(
            Says(missing(
                "second file for uploads of other clients; longhaul cp stores under a partial name by itself",
            )),
            OFF,
        ),
    ),
    ("PAMAuthentication", Combined),
    ("PGSQLConfigFile", DATABASES),
    (
        "PIDFile",
        Comment(same(
            "systemd knows the process; there is no file for its number",
        )),
    ),
    ("PassivePortRange", Value("data-ports", Ports)),
    ("PerUserLimits", Combined),
    ("ProhibitDotFilesRead", DOT_FILES),
    ("ProhibitDotFilesWrite", DOT_FILES),
    ("PureDB", DATABASES),
    ("Quota", Combined),
    ("SyslogFacility", LOGS),
    ("TLS", Combined),
    ("TLSCipherSuite", CIPHERS),
    (
        "TrustedGID",
        Comment(same("nobody can leave the root of the account")),
    ),
    (
        "TrustedIP",
        Comment(decide(
            "allow-from is for all sessions; two servers with files of their own can differ",
        )),
    ),
    ("Umask", Combined),
    ("UnixAuthentication", Combined),
    ("UserBandwidth", Combined),
    ("UserRatio", RATIO),
    ("VerboseLog", LOGS),
];

/// Translates what several directives say together, or one in more than one key.
pub(super) fn combine(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let is_on = |name: &str| get(name).and_then(ForeignDirective::is_on) == Some(true);
    listen(directives, out);
    out.set_by_default("root", quoted("/srv/ftp"), "default: Debian's home of ftp");
    let anonymous_from = get("NoAnonymous").or_else(|| get("AnonymousOnly"));
    if !is_on("NoAnonymous") {
        match anonymous_from {
            Some(from) => out.set("anonymous", quoted("ro"), from),
            None => out.set_by_default("anonymous", quoted("ro"), "default: NoAnonymous no"),
        }
        if !is_on("AnonymousCantUpload") {
            out.ask("anonymous sessions could upload new files: anonymous = \"rw\" lets everybody also change and delete what the account of run-as may; set quota with it");
        }
    }
    if !is_on("AnonymousOnly") {
        logins(directives, out);
    }
    if let Some(from) = get("AltLog") {
        let path = quoted("/var/log/longhaul/transfers.jsonl");
        out.set("transfer-log", path, from);
        out.remark(
            from,
            &missing("other form of the log: it has one JSON object per transfer"),
        );
    }
    match get("AnonymousBandwidth") {
        Some(from) if is_on("AnonymousOnly") => bandwidth("limit-rate-per-address", from, out),
        Some(from) => out.remark(from, &ANONYMOUS_RATE),
        None => {}
    }
    if let Some(from) = get("UserBandwidth") {
        bandwidth("limit-rate-per-user", from, out);
    }
    if let Some(from) = get("PerUserLimits") {
        match numbers(from).as_slice() {
            [users, _] if *users > 0 => out.set("max-sessions-per-user", users.to_string(), from),
            _ => out.remark(from, &decide("the value is not two numbers")),
        }
    }
    quota_and_modes(directives, out);
    tls(directives, out);
}

fn listen(directives: &[ForeignDirective], out: &mut Translation) {
    let on = |name| last(directives, name).filter(|found| found.is_on() == Some(true));
    let only_ipv4 = on("IPV4Only");
    let any = if only_ipv4.is_some() { "0.0.0.0" } else { "::" };
    let Some(from) = last(directives, "Bind") else {
        let address = quoted(&socket(any, "21").unwrap_or_default());
        let reason = "default: port 21, all addresses";
        return out.set_together("listen", address, [only_ipv4], reason);
    };
    let value = from.value();
    let (host, port) = value.rsplit_once(',').unwrap_or((value.as_str(), "21"));
    let (host, only_ipv4) = match host.is_empty() {
        true => (any, only_ipv4),
        false => (host, None),
    };
    match socket(host, port) {
        Some(address) => {
            out.set_together("listen", quoted(&address), [Some(from), only_ipv4], "");
        }
        None => out.remark(from, &decide("listen wants an address and no name")),
    }
}

fn socket(host: &str, port: &str) -> Option<String> {
    let (host, port): (IpAddr, u16) = (host.parse().ok()?, port.parse().ok()?);
    Some(SocketAddr::from((host, port)).to_string())
}

fn logins(directives: &[ForeignDirective], out: &mut Translation) {
    let on = |name: &str| last(directives, name).filter(|found| found.is_on() == Some(true));
    let system = on("PAMAuthentication").or_else(|| on("UnixAuthentication"));
    let has_others = DATABASE_DIRECTIVES
        .iter()
        .any(|name| last(directives, name).is_some());
    match system {
        Some(from) => out.set("pam", quoted("pure-ftpd"), from),
        // pure-ftpd(8), -l: without any method the system's accounts may log in.
        None if !has_others => {
            let reason = "default there: the system's accounts";
            out.set_by_default("pam", quoted("pure-ftpd"), reason);
        }
        None => {}
    }
    if system.is_some() || !has_others {
        out.ask("accounts of the system get the root of the server and the permissions of run-as, not their home directories; longhaul user add --root gives one account a directory of its own");
    }
    for from in ["PAMAuthentication", "UnixAuthentication"]
        .iter()
        .filter_map(|name| last(directives, name))
    {
        if from.is_on() == Some(false) {
            out.remark(
                from,
                &same("system accounts may not log in unless pam is set"),
            );
        }
    }
}

/// Pure-FTPd bounds one session, in KiB/s; one number is for both directions.
fn bandwidth(key: &'static str, from: &ForeignDirective, out: &mut Translation) {
    match numbers(from).as_slice() {
        [kib] | [kib, _] if *kib > 0 => out.set(key, rate(kib.saturating_mul(1024)), from),
        _ => out.remark(from, &decide("the value is no rate")),
    }
}

fn quota_and_modes(directives: &[ForeignDirective], out: &mut Translation) {
    if let Some(from) = last(directives, "Quota") {
        match numbers(from).as_slice() {
            [files, mebibytes] if *files > 0 && *mebibytes > 0 => {
                out.set("quota", quoted(&format!("{mebibytes}Mi")), from);
                out.set("quota-files", files.to_string(), from);
            }
            _ => out.remark(from, &decide("the value is not two numbers")),
        }
    }
    let Some(from) = last(directives, "Umask") else {
        return;
    };
    let value = from.value();
    let parts = value.split([':', ' ']).filter(|part| !part.is_empty());
    let bits: Vec<_> = parts.map(|part| u32::from_str_radix(part, 8)).collect();
    match bits.as_slice() {
        [Ok(files), Ok(directories)] => {
            out.set("file-mode", mode(0o666 & !files), from);
            out.set("directory-mode", mode(0o777 & !directories), from);
        }
        [Ok(both)] => out.set("umask", mode(both & 0o777), from),
        _ => out.remark(from, &decide("the value is no octal mode")),
    }
}

fn tls(directives: &[ForeignDirective], out: &mut Translation) {
    let policy = last(directives, "TLS");
    let is_used = policy.is_some_and(|from| from.value() != "0");
    if let Some(from) = policy {
        match from.value().as_str() {
            "0" => out.remark(from, &same("TLS is off without cert and key")),
            "1" => out.set("tls", quoted("optional"), from),
            "2" => out.set("tls", quoted("required"), from),
            "3" => {
                out.set("tls", quoted("required"), from);
                out.set("require-protection", quoted("data"), from);
            }
            _ => out.remark(from, &decide("the value is not 0, 1, 2 or 3")),
        }
    }
    let bundle = last(directives, "CertFile").or_else(|| last(directives, "CertFileAndKey"));
    match bundle {
        Some(from) if is_used => {
            let file = |index: usize| from.values.get(index).cloned();
            let cert = file(0).unwrap_or_default();
            let key = file(1).unwrap_or_else(|| cert.clone());
            for (name, path) in [("cert", cert), ("key", key)] {
                let one = ForeignDirective {
                    values: vec![path],
                    ..from.clone()
                };
                File.set(name, &one, out);
            }
        }
        Some(from) => out.remark(
            from,
            &decide("TLS was off there; cert and key switch it on"),
        ),
        None if is_used => {
            // Compiled in: pure-ftpd(8), TLS.
            for key in ["cert", "key"] {
                out.set_by_default(
                    key,
                    quoted("/etc/ssl/private/pure-ftpd.pem"),
                    "default there",
                );
            }
            out.needs_file("/etc/ssl/private/pure-ftpd.pem");
        }
        None => {}
    }
}

/// The numbers of a value, with spaces or colons between them; none if a word is no number.
fn numbers(from: &ForeignDirective) -> Vec<u64> {
    let value = from.value();
    let parts = value.split([':', ' ']).filter(|part| !part.is_empty());
    let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
    numbers.unwrap_or_default()
}
