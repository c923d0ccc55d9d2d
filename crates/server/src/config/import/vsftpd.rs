//! Directives of vsftpd 3.0 (vsftpd.conf(5)).

use super::directives::{ForeignDirective, last};
use super::rule::ImportOutcome::{self, Key};
use super::rule::ImportRule::{Combined, Comment, Switch, Value};
use super::rule::ValueForm::{BytesPerSecond, Count, Directory, File, Ipv4, Mode, Seconds, Text};
use super::rule::{ANONYMOUS_RATE, ImportRule, decide, missing, mode, ports, same};
use super::translation::{Translation, quoted};

const NOTHING: ImportOutcome = ImportOutcome::Comment(same("nothing is done"));
const PRIVILEGES: ImportRule = Comment(same(
    "the server serves as one account without privileges (run-as), in a sandbox",
));
const FINE_RIGHTS: ImportRule = Comment(decide(
    "rights are per account (longhaul user add --read-only) and those of the file system, not per command",
));
const TLS_VERSIONS: ImportRule = Comment(same(
    "TLS 1.2 and 1.3, with ciphers of the system's OpenSSL",
));
const VIRTUAL_USERS: ImportRule = Comment(decide(
    "make each virtual user with: longhaul user add --users FILE --root DIR NAME, and set users",
));
const EMAIL: ImportRule = Comment(missing(
    "check of the e-mail addresses that anonymous users give",
));
const LOGS: ImportRule = Comment(same(
    "transfers are in transfer-log, one JSON object each; messages go to the journal",
));
const USER_LIST: ImportRule = Comment(decide(
    "put the names of userlist_file into deny-users, or with userlist_deny=NO into allow-users",
));
const CHROOT: ImportRule = Comment(same("nobody can leave the root of the account"));

/// How each directive maps.
pub(super) const TABLE: &[(&str, ImportRule)] = &[
    (
        "accept_timeout",
        Comment(same(
            "transfers wait for a connection for stall-timeout at most",
        )),
    ),
    (
        "allow_anon_ssl",
        Comment(same("anonymous sessions may use TLS where it is offered")),
    ),
    ("allow_writeable_chroot", CHROOT),
    ("anon_max_rate", Combined),
    ("anon_mkdir_write_enable", Combined),
    ("anon_other_write_enable", Combined),
    ("anon_root", Combined),
    (
        "anon_umask",
        Comment(decide(
            "umask is one for all accounts; the key is that of local_umask",
        )),
    ),
    ("anon_upload_enable", Combined),
    (
        "anon_world_readable_only",
        Switch(
            ImportOutcome::Comment(decide(
                "the permissions of the account of run-as count: files that it may not read are not served",
            )),
            NOTHING,
        ),
    ),
    ("anonymous_enable", Combined),
    (
        "ascii_download_enable",
        Comment(same("TYPE A converts line ends in both directions")),
    ),
    (
        "ascii_upload_enable",
        Comment(same("TYPE A converts line ends in both directions")),
    ),
    (
        "async_abor_enable",
        Comment(same("ABOR ends a running transfer")),
    ),
    (
        "background",
        Comment(same("the server runs in the foreground; systemd starts it")),
    ),
    ("banned_email_file", EMAIL),
    ("banner_file", Value("banner-file", File)),
    ("ca_certs_file", Value("client-ca", File)),
    (
        "check_shell",
        Comment(decide(
            "the rules of the PAM service decide (pam_shells.so)",
        )),
    ),
    (
        "chmod_enable",
        Switch(
            ImportOutcome::Comment(same("SITE CHMOD is for those who may write")),
            ImportOutcome::Comment(missing(
                "switch for SITE CHMOD; it is for those who may write",
            )),
        ),
    ),
    (
        "chown_upload_mode",
        Comment(missing(
            "other mode for uploads of anonymous users; file-mode is for all",
        )),
    ),
    (
        "chown_uploads",
        Comment(decide(
            "upload-owner needs a server that serves as root; better choose run-as and file-mode",
        )),
    ),
    (
        "chown_username",
        Comment(decide(
            "upload-owner needs a server that serves as root; better choose run-as and file-mode",
        )),
    ),
    ("chroot_list_enable", CHROOT),
    ("chroot_list_file", CHROOT),
    ("chroot_local_user", CHROOT),
    ("cmds_allowed", FINE_RIGHTS),
    ("cmds_denied", FINE_RIGHTS),
    (
        "connect_from_port_20",
        Comment(same(
            "the server connects from any port, and never from a privileged one",
        )),
    ),
    (
        "connect_timeout",
        Comment(same("a connection to a client has a limit of its own")),
    ),
    ("data_connection_timeout", Value("stall-timeout", Seconds)),
    ("debug_ssl", LOGS),
    (
        "delay_failed_login",
        Comment(same(
            "delays grow with the failures of an address and of a name",
        )),
    ),
    (
        "delay_successful_login",
        Comment(missing("delay after a right password")),
    ),
    (
        "delete_failed_uploads",
        Switch(
            ImportOutcome::Comment(missing(
                "deletion of interrupted uploads: they stay, so that clients can resume them",
            )),
            ImportOutcome::Comment(same(
                "interrupted uploads stay, so that clients can resume them",
            )),
        ),
    ),
    ("deny_email_enable", EMAIL),
    (
        "deny_file",
        Comment(missing(
            "names that are refused; take away the permissions of the files",
        )),
    ),
    ("dirlist_enable", FINE_RIGHTS),
    ("dirmessage_enable", Combined),
    ("download_enable", FINE_RIGHTS),
    (
        "dsa_cert_file",
        Comment(missing("DSA keys; use rsa_cert_file, or a key of ECDSA")),
    ),
    (
        "dsa_private_key_file",
        Comment(missing(
            "DSA keys; use rsa_private_key_file, or a key of ECDSA",
        )),
    ),
    ("dual_log_enable", LOGS),
    ("email_password_file", EMAIL),
    ("file_open_mode", Combined),
    ("force_anon_data_ssl", Combined),
    ("force_anon_logins_ssl", Combined),
    (
        "force_dot_files",
        Comment(same("listings show names that begin with a dot")),
    ),
    ("force_local_data_ssl", Combined),
    ("force_local_logins_ssl", Combined),
    (
        "ftp_data_port",
        Comment(same(
            "the server connects from any port, and never from a privileged one",
        )),
    ),
    ("ftp_username", Value("run-as", Text)),
    ("ftpd_banner", Value("banner", Text)),
    ("guest_enable", VIRTUAL_USERS),
    ("guest_username", Combined),
    (
        "hide_file",
        Comment(missing(
            "hidden names; take away the permissions of the directory",
        )),
    ),
    (
        "hide_ids",
        Switch(
            ImportOutcome::Comment(missing(
                "hiding of owners: listings show the numbers of user and group",
            )),
            NOTHING,
        ),
    ),
    ("idle_session_timeout", Value("idle-timeout", Seconds)),
    ("implicit_ssl", Combined),
    ("isolate", PRIVILEGES),
    ("isolate_network", PRIVILEGES),
    ("listen", Combined),
    ("listen_address", Combined),
    ("listen_address6", Combined),
    ("listen_ipv6", Combined),
    ("listen_port", Combined),
    ("local_enable", Combined),
    (
        "local_max_rate",
        Value("limit-rate-per-user", BytesPerSecond),
    ),
    ("local_root", Combined),
    ("local_umask", Combined),
    (
        "lock_upload_files",
        Comment(same("one upload at a time owns a file")),
    ),
    ("log_ftp_protocol", LOGS),
    (
        "ls_recurse_enable",
        Switch(
            ImportOutcome::Comment(missing(
                "listing of whole trees with ls -R; longhaul and globus clients use MLSR",
            )),
            ImportOutcome::Comment(same("ls -R lists one directory")),
        ),
    ),
    ("max_clients", Value("max-sessions", Count)),
    (
        "max_login_fails",
        Comment(same(
            "failures are counted for the address and the name, over all sessions",
        )),
    ),
    ("max_per_ip", Value("max-sessions-per-address", Count)),
    (
        "mdtm_write",
        Comment(same("those who may write may set times")),
    ),
    ("message_file", Combined),
    (
        "no_anon_password",
        Comment(same("any password is right for anonymous")),
    ),
    ("no_log_lock", LOGS),
    ("nopriv_user", PRIVILEGES),
    ("one_process_model", PRIVILEGES),
    ("pam_service_name", Combined),
    ("passwd_chroot_enable", CHROOT),
    (
        "pasv_addr_resolve",
        Comment(decide("public-address is an address and no name")),
    ),
    ("pasv_address", Value("public-address", Ipv4)),
    (
        "pasv_enable",
        Switch(
            ImportOutcome::Comment(same("passive mode is on")),
            ImportOutcome::Comment(missing("switch for passive mode")),
        ),
    ),
    ("pasv_max_port", Combined),
    ("pasv_min_port", Combined),
    (
        "pasv_promiscuous",
        Switch(
            Key("foreign-data-addresses", "true"),
            ImportOutcome::Comment(same("data connections come from the address of the client")),
        ),
    ),
    (
        "port_enable",
        Switch(
            ImportOutcome::Comment(same("active mode is on")),
            ImportOutcome::Comment(missing("switch for active mode")),
        ),
    ),
    (
        "port_promiscuous",
        Switch(
            Key("foreign-data-addresses", "true"),
            ImportOutcome::Comment(same("data connections go to the address of the client")),
        ),
    ),
    (
        "require_cert",
        Switch(
            Key("client-certs", "\"required\""),
            ImportOutcome::Comment(same(
                "no certificate is needed, unless client-certs says so",
            )),
        ),
    ),
    ("require_ssl_reuse", Combined),
    (
        "reverse_lookup_enable",
        Comment(same("names of clients are not looked up")),
    ),
    ("rsa_cert_file", Combined),
    ("rsa_private_key_file", Combined),
    ("run_as_launching_user", PRIVILEGES),
    ("seccomp_sandbox", PRIVILEGES),
    ("secure_chroot_dir", PRIVILEGES),
    ("secure_email_list_enable", EMAIL),
    (
        "session_support",
        Comment(missing("sessions of PAM: no login is recorded in wtmp")),
    ),
    (
        "setproctitle_enable",
        Comment(same(
            "sessions are in /metrics, not in the list of processes",
        )),
    ),
    ("ssl_ciphers", TLS_VERSIONS),
    ("ssl_enable", Combined),
    (
        "ssl_request_cert",
        Comment(same("client-certs = \"optional\" asks for certificates")),
    ),
    ("ssl_sslv2", TLS_VERSIONS),
    ("ssl_sslv3", TLS_VERSIONS),
    ("ssl_tlsv1", TLS_VERSIONS),
    ("ssl_tlsv1_1", TLS_VERSIONS),
    ("ssl_tlsv1_2", TLS_VERSIONS),
    ("ssl_tlsv1_3", TLS_VERSIONS),
    (
        "strict_ssl_read_eof",
        Comment(same("an upload that ends without close_notify fails")),
    ),
    (
        "strict_ssl_write_shutdown",
        Comment(same("data connections end with close_notify")),
    ),
    ("syslog_enable", LOGS),
    (
        "tcp_wrappers",
        Comment(decide(
            "allow-from and deny-from are lists of networks; hosts.allow is not read",
        )),
    ),
    (
        "text_userdb_names",
        Comment(missing("names of owners: listings show numbers")),
    ),
    ("tilde_user_enable", Comment(missing("names like ~chris"))),
    (
        "trans_chunk_size",
        Comment(same("the sizes of reads and writes need no setting")),
    ),
    (
        "use_localtime",
        Comment(same("times are in UTC, as RFC 3659 demands")),
    ),
    (
        "use_sendfile",
        Comment(same("sendfile is used where it helps (io)")),
    ),
    (
        "user_config_dir",
        Comment(decide(
            "settings of one user are tables [user.NAME] (max-sessions, quota, limit-rate)",
        )),
    ),
    ("user_sub_token", VIRTUAL_USERS),
    ("userlist_deny", USER_LIST),
    (
        "userlist_enable",
        Switch(
            ImportOutcome::Comment(decide(
                "put the names of userlist_file into deny-users, or with userlist_deny=NO into allow-users",
            )),
            NOTHING,
        ),
    ),
    ("userlist_file", USER_LIST),
    ("userlist_log", LOGS),
    (
        "utf8_filesystem",
        Comment(same("names are bytes, and shown as they are")),
    ),
    (
        "validate_cert",
        Comment(same("a certificate that a client shows is checked")),
    ),
    ("virtual_use_local_privs", VIRTUAL_USERS),
    ("vsftpd_log_file", LOGS),
    ("write_enable", Combined),
    (
        "xferlog_enable",
        Switch(
            Key("transfer-log", "\"/var/log/longhaul/transfers.jsonl\""),
            NOTHING,
        ),
    ),
    ("xferlog_file", LOGS),
    ("xferlog_std_format", LOGS),
];

/// Translates what several directives say together.
pub(super) fn combine(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let is_on = |name: &str, default: bool| {
        get(name)
            .and_then(ForeignDirective::is_on)
            .unwrap_or(default)
    };
    listen(directives, out);
    let anonymous = is_on("anonymous_enable", false);
    let local = is_on("local_enable", false);
    root(directives, anonymous, out);
    if let Some(from) = get("anonymous_enable").filter(|_| anonymous) {
        out.set("anonymous", quoted("ro"), from);
        if is_on("write_enable", false) && is_on("anon_upload_enable", false) {
            out.ask("anonymous sessions could upload: anonymous = \"rw\" lets everybody also change and delete what the account of run-as may; set quota with it");
        }
    }
    if local && !is_on("guest_enable", false) {
        let service = get("pam_service_name");
        let name = service.map(ForeignDirective::value);
        let name = quoted(name.as_deref().unwrap_or("ftp"));
        out.set_together("pam", name, [get("local_enable"), service], "");
        if !is_on("write_enable", false) {
            let from = [get("write_enable")];
            let reason = "default: write_enable=NO";
            out.set_together("pam-rights", quoted("ro"), from, reason);
        }
        out.ask("accounts of the system get the root of the server and the permissions of run-as, not their home directories; longhaul user add --root gives one account a directory of its own");
    }
    match get("anon_max_rate") {
        Some(from) if local => out.remark(from, &ANONYMOUS_RATE),
        Some(from) => BytesPerSecond.set("limit-rate-per-address", from, out),
        None => {}
    }
    data_ports(directives, out);
    if is_on("dirmessage_enable", false) {
        let file = get("message_file");
        let name = file.map(ForeignDirective::value);
        let name = quoted(name.as_deref().unwrap_or(".message"));
        let from = [get("dirmessage_enable"), file];
        out.set_together("directory-message", name, from, "");
    }
    modes(directives, is_on("write_enable", false), out);
    tls(directives, anonymous, out);
}

fn listen(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let on = |name: &str| get(name).filter(|found| found.is_on() == Some(true));
    let implicit = on("implicit_ssl").is_some();
    let port = get("listen_port").map(ForeignDirective::value);
    let port = port
        .as_deref()
        .unwrap_or(if implicit { "990" } else { "21" });
    let (address, from) = match (get("listen_address"), get("listen_address6")) {
        (Some(from), _) => (from.value(), Some(from)),
        (None, Some(from)) => (format!("[{}]", from.value()), Some(from)),
        (None, None) => match (on("listen_ipv6"), on("listen")) {
            (Some(from), _) => ("[::]".to_owned(), Some(from)),
            (None, Some(from)) => ("0.0.0.0".to_owned(), Some(from)),
            (None, None) => ("[::]".to_owned(), None),
        },
    };
    let is_usable = |text: &str| text.parse::<std::net::SocketAddr>().is_ok();
    let address = Some(format!("{address}:{port}")).filter(|text| is_usable(text));
    let address = address.unwrap_or_else(|| "[::]:21".to_owned());
    let key = if implicit { "implicit-tls" } else { "listen" };
    let from = [from, get("listen_port"), on("implicit_ssl")];
    out.set_together(key, quoted(&address), from, "there it runs from inetd");
    if implicit {
        out.ask("implicit-tls is a second port; listen stays 127.0.0.1:2811 without a value");
    }
}

/// One end alone bounds the ports there, and is no range here; 0 is none.
fn data_ports(directives: &[ForeignDirective], out: &mut Translation) {
    let ends = ["pasv_min_port", "pasv_max_port"].map(|name| last(directives, name));
    let range = match ends {
        [Some(low), Some(high)] => ports(&format!("{}-{}", low.value(), high.value())),
        _ => None,
    };
    if let Some(range) = range {
        return out.set_together("data-ports", range, ends, "");
    }
    for from in ends.into_iter().flatten() {
        if from.value() != "0" {
            out.remark(
                from,
                &decide("data-ports needs a first and a last port, such as 50000-50999"),
            );
        }
    }
}

fn root(directives: &[ForeignDirective], anonymous: bool, out: &mut Translation) {
    let name = if anonymous { "anon_root" } else { "local_root" };
    let token = last(directives, "user_sub_token").map(ForeignDirective::value);
    let token = token.filter(|token| !token.is_empty());
    // The token stands for the name of the user, so the path is another one for each.
    let is_of_each = |path: &str| {
        path.contains('$') || token.as_deref().is_some_and(|token| path.contains(token))
    };
    match last(directives, name) {
        Some(from) if !is_of_each(&from.value()) => Directory.set("root", from, out),
        from => {
            out.set_by_default("root", quoted("/srv/ftp"), "default: Debian's home of ftp");
            if let Some(from) = from {
                out.remark(
                    from,
                    &decide("each user had a root: longhaul user add --root DIR NAME gives it; the others get the server's"),
                );
            }
        }
    }
    let other = if anonymous { "local_root" } else { "anon_root" };
    for from in directives.iter().filter(|found| found.name == other) {
        out.remark(
            from,
            &decide("the server has one root; longhaul user add --root gives an account its own"),
        );
    }
}

fn modes(directives: &[ForeignDirective], writes: bool, out: &mut Translation) {
    let bits = |name: &str| {
        let value = last(directives, name)?.value();
        u32::from_str_radix(&value, 8).ok()
    };
    match (last(directives, "file_open_mode"), bits("file_open_mode")) {
        (Some(from), Some(open_mode)) => {
            let umask = bits("local_umask").unwrap_or(0o077);
            out.set("file-mode", mode(open_mode & !umask & 0o777), from);
        }
        (Some(from), None) => out.remark(from, &decide("the value is no octal mode")),
        (None, _) => {}
    }
    match last(directives, "local_umask") {
        Some(from) => Mode.set("umask", from, out),
        None if writes => out.set_by_default("umask", quoted("077"), "default: local_umask"),
        None => {}
    }
}

fn tls(directives: &[ForeignDirective], anonymous: bool, out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let is_on = |name: &str, default: bool| {
        get(name)
            .and_then(ForeignDirective::is_on)
            .unwrap_or(default)
    };
    let files = [("rsa_cert_file", "cert"), ("rsa_private_key_file", "key")];
    let Some(from) = get("ssl_enable").filter(|found| found.is_on() == Some(true)) else {
        for found in files.iter().filter_map(|(name, _)| get(name)) {
            out.remark(
                found,
                &decide("ssl_enable=NO there; cert and key switch TLS on"),
            );
        }
        return;
    };
    for (name, key) in files {
        // A certificate file without a key file has both.
        if let Some(found) = get(name).or_else(|| get("rsa_cert_file")) {
            File.set(key, found, out);
        }
    }
    let logins = is_on("force_local_logins_ssl", true);
    let required = logins && (!anonymous || is_on("force_anon_logins_ssl", false));
    let policy = if required { "required" } else { "optional" };
    let [local, anon] = ["force_local_logins_ssl", "force_anon_logins_ssl"].map(get);
    out.set_together("tls", quoted(policy), [Some(from), local, anon], "");
    let data = is_on("force_local_data_ssl", true);
    if data && (!anonymous || is_on("force_anon_data_ssl", false)) {
        let from = ["force_local_data_ssl", "force_anon_data_ssl"].map(get);
        out.set_together(
            "require-protection",
            quoted("data"),
            from,
            "default: force_local_data_ssl",
        );
    } else if data {
        out.ask("the data of users who have logged in had to be encrypted: require-protection = \"data\" demands it of everybody, also of anonymous sessions");
    }
    if is_on("require_ssl_reuse", true) {
        let from = [get("require_ssl_reuse")];
        out.set_together(
            "tls-session-reuse",
            quoted("required"),
            from,
            "default: require_ssl_reuse",
        );
    }
}
