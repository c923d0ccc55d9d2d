//! Directives of ProFTPD 1.3 (<http://www.proftpd.org/docs/directives/>).

use std::net::{IpAddr, SocketAddr};

use super::directives::{ForeignDirective, last};
use super::rule::ImportOutcome::{Comment as Says, Key};
use super::rule::ImportRule::{Combined, Comment, Switch, Value};
use super::rule::ValueForm::{Count, File, Ipv4, Ports, Seconds, Text};
use super::rule::{ImportOutcome, ImportRemark, ImportRule, decide, missing, mode, same};
use super::translation::{Translation, quoted, quoted_list};
use crate::config::ClientNetwork;

const OFF: ImportOutcome = Says(same("nothing is done"));
const LOGS: ImportRule = Comment(same(
    "transfers are in transfer-log, one JSON object each; messages go to the journal",
));
const DATABASES: ImportRule = Comment(decide(
    "accounts are in the users file (longhaul user add --root DIR NAME); passwords cannot be taken over",
));
const NOT_SHOWN: ImportRule = Comment(missing(
    "hiding of names and owners; take away the permissions of the directory",
));
const FILTERS: ImportRule = Comment(missing("filters for commands and names"));
const TLS_VERSIONS: ImportRule = Comment(same(
    "TLS 1.2 and 1.3, with ciphers of the system's OpenSSL",
));
const CONTROLS: ImportRule = Comment(missing(
    "socket for a control program; /metrics and /health say how the server is",
));
const QUOTAS: ImportRule = Comment(decide(
    "quota and quota-files bound a root, and in [user.NAME] that of one user; tables of mod_quotatab are not read",
));
const RATIOS: ImportRule = Comment(missing("ratios of uploads and downloads"));
const SFTP: ImportRule = Comment(missing(
    "SFTP: sshd serves it, and longhaul copies from and to it (sftp:)",
));
const NEEDS_NOTHING: ImportRule = Comment(same("needs no setting"));
const AUTHENTICATION: ImportRule = Comment(decide(
    "a name of the users file is checked there, all others by pam",
));
const LOOKUPS: ImportRule = Switch(
    Says(missing("look-up of the client's name or user")),
    Says(same("names of clients are not looked up")),
);

/// How each directive maps outside of sections.
pub(super) const TABLE: &[(&str, ImportRule)] = &[
    (
        "AccessDenyMsg",
        Comment(missing("text of its own for refused logins")),
    ),
    (
        "AccessGrantMsg",
        Comment(decide("welcome-file has the lines that follow a login")),
    ),
    ("AllowFilter", FILTERS),
    (
        "AllowForeignAddress",
        Switch(
            Key("foreign-data-addresses", "true"),
            Says(same("data connections go to the address of the client")),
        ),
    ),
    ("AllowOverride", Comment(missing(".ftpaccess files"))),
    (
        "AllowOverwrite",
        Switch(
            Says(same("those who may write may replace files")),
            Says(missing(
                "accounts that may store and not replace, but for tokens (storage.create)",
            )),
        ),
    ),
    (
        "AllowRetrieveRestart",
        Switch(
            Says(same("downloads can be resumed")),
            Says(missing("switch for resuming")),
        ),
    ),
    (
        "AllowStoreRestart",
        Switch(
            Says(same("uploads can be resumed")),
            Says(missing("switch for resuming")),
        ),
    ),
    ("AnonRequirePassword", DATABASES),
    ("AuthAliasOnly", AUTHENTICATION),
    ("AuthGroupFile", DATABASES),
    ("AuthOrder", AUTHENTICATION),
    ("AuthPAM", AUTHENTICATION),
    ("AuthPAMConfig", Combined),
    ("AuthUserFile", DATABASES),
    ("ControlsACLs", CONTROLS),
    ("ControlsEngine", CONTROLS),
    ("ControlsInterval", CONTROLS),
    ("ControlsLog", CONTROLS),
    ("ControlsMaxClients", CONTROLS),
    ("ControlsSocket", CONTROLS),
    ("ControlsSocketOwner", CONTROLS),
    ("AdminControlsEngine", CONTROLS),
    (
        "CreateHome",
        Comment(missing(
            "directories made at the login; make them with: install -d -o ACCOUNT DIR",
        )),
    ),
    ("DefaultAddress", Combined),
    (
        "DefaultChdir",
        Comment(decide(
            "longhaul user add --home PATH is where sessions of an account begin",
        )),
    ),
    ("DefaultRoot", Combined),
    ("DefaultServer", NEEDS_NOTHING),
    ("DeferWelcome", NEEDS_NOTHING),
    (
        "DelayEngine",
        Comment(same("a wrong name takes as long as a wrong password")),
    ),
    ("DelayTable", NEEDS_NOTHING),
    ("DenyFilter", FILTERS),
    ("DirFakeGroup", NOT_SHOWN),
    ("DirFakeMode", NOT_SHOWN),
    ("DirFakeUser", NOT_SHOWN),
    ("DisplayChdir", Combined),
    ("DisplayConnect", Value("banner-file", File)),
    (
        "DisplayGoAway",
        Comment(missing("text of its own for too many sessions")),
    ),
    ("DisplayLogin", Value("welcome-file", File)),
    (
        "DisplayQuit",
        Comment(missing("text for the end of a session")),
    ),
    (
        "DynMasqRefresh",
        Comment(missing("names in public-address; it is an address")),
    ),
    ("ExtendedLog", LOGS),
    (
        "Group",
        Comment(same("the server has the groups of the account of run-as")),
    ),
    (
        "GroupOwner",
        Comment(decide(
            "a directory with the set-group-ID bit gives new files its group (directory-mode)",
        )),
    ),
    (
        "HiddenStores",
        Comment(missing(
            "second name for uploads of other clients; longhaul cp stores under a partial name by itself",
        )),
    ),
    ("HideFiles", NOT_SHOWN),
    ("HideGroup", NOT_SHOWN),
    ("HideNoAccess", NOT_SHOWN),
    ("HideUser", NOT_SHOWN),
    ("IdentLookups", LOOKUPS),
    ("IgnoreHidden", NOT_SHOWN),
    (
        "Include",
        Comment(decide("translate that file, too, and put both together")),
    ),
    ("ListOptions", Comment(same("LIST is as ls -l"))),
    ("LoadModule", Comment(same("nothing needs to be loaded"))),
    ("LogFormat", LOGS),
    ("MasqueradeAddress", Value("public-address", Ipv4)),
    ("MaxClients", Combined),
    ("MaxClientsPerHost", Combined),
    ("MaxClientsPerUser", Combined),
    ("MaxConnectionsPerHost", Combined),
    (
        "MaxHostsPerUser",
        Comment(missing("bound on the addresses of one user")),
    ),
    ("MaxInstances", Combined),
    (
        "MaxLoginAttempts",
        Comment(same(
            "failures are counted for the address and the name, over all sessions",
        )),
    ),
    (
        "MaxRetrieveFileSize",
        Comment(missing("bound on the size of a download")),
    ),
    (
        "MaxStoreFileSize",
        Comment(decide("quota bounds the root, not one file")),
    ),
    ("ModulePath", NEEDS_NOTHING),
    ("MultilineRFC2228", NEEDS_NOTHING),
    ("PassivePorts", Value("data-ports", Ports)),
    ("PathAllowFilter", FILTERS),
    ("PathDenyFilter", FILTERS),
    ("PersistentPasswd", NEEDS_NOTHING),
    (
        "PidFile",
        Comment(same(
            "systemd knows the process; there is no file for its number",
        )),
    ),
    ("Port", Combined),
    ("ProcessTitles", NEEDS_NOTHING),
    ("QuotaDirectoryTally", QUOTAS),
    ("QuotaDisplayUnits", QUOTAS),
    (
        "QuotaEngine",
        Switch(
            Says(decide(
                "quota and quota-files bound a root, and in [user.NAME] that of one user; tables of mod_quotatab are not read",
            )),
            OFF,
        ),
    ),
    ("QuotaLimitTable", QUOTAS),
    ("QuotaLog", QUOTAS),
    ("QuotaTallyTable", QUOTAS),
    (
        "RateReadBPS",
        Comment(decide(
            "limit-rate, limit-rate-per-address or limit-rate-per-user, in bit/s",
        )),
    ),
    (
        "Ratios",
        Switch(Says(missing("ratios of uploads and downloads")), OFF),
    ),
    ("FileRatio", RATIOS),
    (
        "RequireValidShell",
        Comment(decide(
            "the rules of the PAM service decide (pam_shells.so)",
        )),
    ),
    (
        "RootLogin",
        Switch(
            Says(missing("logins of root")),
            Says(same("root may not log in")),
        ),
    ),
    ("SFTPEngine", SFTP),
    ("SFTPHostKey", SFTP),
    ("SFTPLog", SFTP),
    ("SFTPAuthMethods", SFTP),
    ("SQLAuthTypes", DATABASES),
    ("SQLBackend", DATABASES),
    ("SQLConnectInfo", DATABASES),
    ("ScoreboardFile", NEEDS_NOTHING),
    ("ServerAdmin", NEEDS_NOTHING),
    ("ServerIdent", Combined),
    ("ServerLog", LOGS),
    (
        "ServerName",
        Comment(decide(
            "banner is the greeting; without it, name and version of longhaul",
        )),
    ),
    (
        "ServerType",
        Comment(same(
            "the server listens by itself; systemd can pass it the sockets",
        )),
    ),
    ("SetEnv", NEEDS_NOTHING),
    ("ShowSymlinks", Comment(same("links are shown as links"))),
    (
        "SocketOptions",
        Comment(same("buffers are sized for the path (buffer)")),
    ),
    ("StoreUniquePrefix", NEEDS_NOTHING),
    ("SyslogFacility", LOGS),
    ("SyslogLevel", LOGS),
    ("SystemLog", LOGS),
    ("TCPBackLog", NEEDS_NOTHING),
    ("TLSCACertificateFile", Value("client-ca", File)),
    ("TLSCACertificatePath", Value("client-ca", File)),
    (
        "TLSCARevocationFile",
        Comment(decide(
            "put the revocation lists behind the certificates of client-ca, in the same file",
        )),
    ),
    (
        "TLSCertificateChainFile",
        Comment(decide(
            "put the chain behind the certificate, in the file of cert",
        )),
    ),
    ("TLSCipherSuite", TLS_VERSIONS),
    ("TLSECCertificateFile", Combined),
    ("TLSECCertificateKeyFile", Combined),
    ("TLSEngine", Combined),
    ("TLSLog", LOGS),
    ("TLSOptions", Combined),
    ("TLSProtocol", TLS_VERSIONS),
    ("TLSRSACertificateFile", Combined),
    ("TLSRSACertificateKeyFile", Combined),
    ("TLSRenegotiate", Comment(same("TLS is never renegotiated"))),
    ("TLSRequired", Combined),
    ("TLSVerifyClient", Combined),
    ("TimeoutIdle", Value("idle-timeout", Seconds)),
    ("TimeoutLogin", Value("login-timeout", Seconds)),
    (
        "TimeoutNoTransfer",
        Comment(missing(
            "limit of the time without a transfer; idle-timeout is the time without a command",
        )),
    ),
    (
        "TimeoutSession",
        Comment(missing("limit of the length of a session")),
    ),
    ("TimeoutStalled", Value("stall-timeout", Seconds)),
    (
        "TimesGMT",
        Comment(same("times are in UTC, as RFC 3659 demands")),
    ),
    ("TransferLog", Combined),
    (
        "TransferRate",
        Comment(decide(
            "limit-rate-per-user or limit-rate-per-address, in bit/s and for both directions",
        )),
    ),
    ("Umask", Combined),
    (
        "UseEncoding",
        Comment(same("names are bytes, and shown as they are")),
    ),
    (
        "UseFtpUsers",
        Comment(decide(
            "the rules of the PAM service decide (pam_listfile.so); deny-users does, too",
        )),
    ),
    ("UseIPv6", Combined),
    ("UseLastlog", Comment(missing("entries in lastlog"))),
    ("UseReverseDNS", LOOKUPS),
    (
        "UseSendFile",
        Comment(same("sendfile is used where it helps (io)")),
    ),
    ("User", Value("run-as", Text)),
    ("UserAlias", Comment(missing("second names of an account"))),
    (
        "UserOwner",
        Comment(decide(
            "upload-owner needs a server that serves as root; better choose run-as and file-mode",
        )),
    ),
    (
        "VRootEngine",
        Comment(same("nobody can leave the root of the account")),
    ),
    (
        "VRootAlias",
        Comment(missing(
            "directories of elsewhere in a root; use bind mounts",
        )),
    ),
    (
        "VRootServerRoot",
        Comment(same("nobody can leave the root of the account")),
    ),
    ("WtmpLog", Comment(missing("entries in wtmp"))),
];

/// Why a directive inside of this section is not translated by the table; `None`: it is.
pub(super) fn reason_of_section(section: &str) -> Option<ImportRemark> {
    let (name, _) = section
        .split_once(char::is_whitespace)
        .unwrap_or((section, ""));
    Some(match name.to_ascii_lowercase().as_str() {
        "anonymous" => decide(
            "inside <Anonymous>: root and anonymous = \"ro\" are translated; the other settings are those of the whole server",
        ),
        "virtualhost" => decide(
            "inside <VirtualHost>: start another server with a settings file of its own, and translate the section alone",
        ),
        "directory" => decide(
            "inside <Directory>: rights are per account and those of the file system, not per directory",
        ),
        "limit" => decide(
            "inside <Limit>: rights are per account (longhaul user add --read-only) and those of the file system; allow-from, deny-from, allow-users and deny-users say who is served",
        ),
        "class" => decide("inside <Class>: allow-from and deny-from are lists of networks"),
        _ => decide("inside a section that is not known here"),
    })
}

/// Translates what several directives say together, and sections.
pub(super) fn combine(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let is_on = |name: &str, default: bool| {
        get(name)
            .and_then(ForeignDirective::is_on)
            .unwrap_or(default)
    };
    listen(directives, out);
    root_and_anonymous(directives, out);
    let service = get("AuthPAMConfig");
    if is_on("AuthPAM", true) && get("AuthUserFile").is_none() {
        match service {
            Some(from) => Text.set("pam", from, out),
            None => out.set_by_default(
                "pam",
                quoted("proftpd"),
                "default there: the system's accounts",
            ),
        }
        out.ask("accounts of the system get the root of the server and the permissions of run-as, not their home directories; longhaul user add --root gives one account a directory of its own");
    }
    let bounds = [
        // MaxClients is usually the smaller one, so it comes last.
        ("MaxInstances", "max-sessions"),
        ("MaxClients", "max-sessions"),
        ("MaxClientsPerHost", "max-sessions-per-address"),
        ("MaxConnectionsPerHost", "max-sessions-per-address"),
        ("MaxClientsPerUser", "max-sessions-per-user"),
    ];
    for (name, key) in bounds {
        if let Some(from) = get(name) {
            // A text for the client may follow.
            Count.set(key, &first_word(from), out);
        }
    }
    if let Some(from) = get("DisplayChdir") {
        Text.set("directory-message", &first_word(from), out);
    }
    if let Some(from) = get("ServerIdent") {
        match from.values.get(1) {
            Some(text) => out.set("banner", quoted(text), from),
            None => out.remark(
                from,
                &decide("banner is the greeting; without it, name and version of longhaul"),
            ),
        }
    }
    if let Some(from) = get("TransferLog") {
        match from.value().eq_ignore_ascii_case("none") {
            true => out.remark(from, &same("there is no log without transfer-log")),
            false => out.set(
                "transfer-log",
                quoted("/var/log/longhaul/transfers.jsonl"),
                from,
            ),
        }
    }
    umask(directives, out);
    access(directives, out);
    tls(directives, out);
}

fn first_word(from: &ForeignDirective) -> ForeignDirective {
    ForeignDirective {
        values: from.values.iter().take(1).cloned().collect(),
        ..from.clone()
    }
}

fn listen(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let port = get("Port").map_or_else(|| "21".to_owned(), ForeignDirective::value);
    let only_ipv4 = get("UseIPv6").filter(|found| found.is_on() == Some(false));
    let any = if only_ipv4.is_some() { "0.0.0.0" } else { "::" };
    let address_from = get("DefaultAddress");
    let address = address_from.map(ForeignDirective::value);
    let address: Option<IpAddr> = address.as_deref().unwrap_or(any).parse().ok();
    let port: Option<u16> = port.parse().ok().filter(|port| *port > 0);
    match address.zip(port) {
        Some(address) => {
            let address = quoted(&SocketAddr::from(address).to_string());
            let from = [address_from.or(only_ipv4), get("Port")];
            out.set_together("listen", address, from, "default: port 21, all addresses");
        }
        None => out.ask("listen: an address and a port above 0"),
    }
}

/// The root is that of anonymous sessions, else DefaultRoot.
fn root_and_anonymous(directives: &[ForeignDirective], out: &mut Translation) {
    let anonymous = directives.iter().find(|found| {
        let section = found.section.as_deref().unwrap_or_default();
        section.to_ascii_lowercase().starts_with("anonymous ")
    });
    let default_root = last(directives, "DefaultRoot");
    if let Some(from) = anonymous {
        let section = from.section.as_deref().unwrap_or_default();
        let origin = format!("<{section}>");
        out.set_by_default("anonymous", quoted("ro"), &origin);
        let path = section.split_whitespace().nth(1).unwrap_or_default();
        let path = if path.starts_with('/') {
            path
        } else {
            "/srv/ftp"
        };
        out.set_by_default("root", quoted(path), &origin);
        if let Some(from) = default_root {
            out.remark(
                from,
                &decide(
                    "the server has one root; longhaul user add --root gives an account its own",
                ),
            );
        }
        return;
    }
    let path = default_root.and_then(|from| from.values.first());
    match (default_root, path.filter(|path| path.starts_with('/'))) {
        (Some(from), Some(path)) => out.set("root", quoted(path), from),
        (from, _) => {
            out.set_by_default("root", quoted("/srv/ftp"), "default: Debian's home of ftp");
            if let Some(from) = from {
                out.remark(
                    from,
                    &decide("longhaul user add --root DIR NAME gives each account its directory"),
                );
            }
        }
    }
}

fn umask(directives: &[ForeignDirective], out: &mut Translation) {
    let Some(from) = last(directives, "Umask") else {
        return;
    };
    let bits: Vec<_> = from
        .values
        .iter()
        .map(|text| u32::from_str_radix(text, 8))
        .collect();
    match bits.as_slice() {
        [Ok(files)] => out.set("umask", mode(files & 0o777), from),
        [Ok(files), Ok(directories)] if files == directories => {
            out.set("umask", mode(files & 0o777), from);
        }
        [Ok(files), Ok(directories)] => {
            out.set("file-mode", mode(0o666 & !files), from);
            out.set("directory-mode", mode(0o777 & !directories), from);
        }
        _ => out.remark(from, &decide("the value is no octal mode")),
    }
}

/// Networks of `<Limit LOGIN>` outside of other sections.
fn access(directives: &[ForeignDirective], out: &mut Translation) {
    let is_login = |found: &&ForeignDirective| {
        let section = found.section.as_deref().unwrap_or_default();
        section.eq_ignore_ascii_case("limit login")
    };
    for from in directives.iter().filter(is_login) {
        let key = match from.name.to_ascii_lowercase().as_str() {
            "allow" => "allow-from",
            "deny" => "deny-from",
            _ => continue,
        };
        let words = from
            .values
            .iter()
            .filter(|word| !word.eq_ignore_ascii_case("from"));
        let parts: Vec<&str> = words
            .flat_map(|word| word.split(','))
            .filter(|part| !part.is_empty())
            .collect();
        let are_networks = parts
            .iter()
            .all(|part| part.parse::<ClientNetwork>().is_ok());
        if are_networks && !parts.is_empty() {
            out.set(key, quoted_list(&parts), from);
        }
    }
}

fn tls(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let either = |first: &str, second: &str| get(first).or_else(|| get(second));
    let certificate = either("TLSRSACertificateFile", "TLSECCertificateFile");
    let key = either("TLSRSACertificateKeyFile", "TLSECCertificateKeyFile");
    let Some(engine) = get("TLSEngine").filter(|found| found.is_on() == Some(true)) else {
        for found in [certificate, key].into_iter().flatten() {
            out.remark(
                found,
                &decide("TLSEngine is off there; cert and key switch TLS on"),
            );
        }
        return;
    };
    for (name, found) in [("cert", certificate), ("key", key)] {
        if let Some(found) = found {
            File.set(name, found, out);
        }
    }
    let demand = get("TLSRequired");
    let value = demand.map(|found| found.value().to_ascii_lowercase());
    let (policy, is_for_data) = match value.as_deref() {
        Some("on" | "auth+data" | "ctrl+data") => (Some("required"), true),
        Some("ctrl" | "auth") => (Some("required"), false),
        Some("data") => (None, true),
        _ => (Some("optional"), false),
    };
    if let Some(policy) = policy {
        out.set_together("tls", quoted(policy), [Some(engine), demand], "");
    }
    if is_for_data {
        out.set_together("require-protection", quoted("data"), [demand], "");
    }
    let options = get("TLSOptions")
        .map(ForeignDirective::value)
        .unwrap_or_default();
    if !options
        .to_ascii_lowercase()
        .contains("nosessionreuserequired")
    {
        out.set_by_default(
            "tls-session-reuse",
            quoted("required"),
            "default of mod_tls",
        );
    }
    let verify = get("TLSVerifyClient").map(|found| (found.value().to_ascii_lowercase(), found));
    match verify {
        Some((value, from)) if value == "on" => out.set("client-certs", quoted("required"), from),
        Some((value, from)) if value == "optional" => {
            out.set("client-certs", quoted("optional"), from);
        }
        _ => {}
    }
}
