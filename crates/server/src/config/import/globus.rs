//! Options of globus-gridftp-server 13 (gridftp.conf, globus-gridftp-server(8)).

use std::net::{IpAddr, SocketAddr};

use super::directives::{ForeignDirective, last};
use super::rule::ImportOutcome::{Comment as Says, Key};
use super::rule::ImportRule::{Combined, Comment, Switch, Value};
use super::rule::ValueForm::{Count, Directory, File, Mode, Ports, Seconds, Text};
use super::rule::{ImportOutcome, ImportRemark, ImportRule, decide, missing, names, same};
use super::translation::{Translation, quoted, quoted_list};

const OFF: ImportOutcome = Says(same("nothing is done"));
const PROCESS: ImportRule = Comment(same(
    "one process serves all sessions in the foreground; systemd starts it",
));
const SHARING: ImportRule = Comment(missing(
    "sharing of an account with others (Globus Sharing)",
));
const NODES: ImportRule = Comment(decide(
    "data nodes are longhaul, too: [[data-node]] here, front-end there, cert, key and node-ca at both (docs/stripes.md)",
));
const STRIPES: ImportRule = Comment(same(
    "the client chooses the layout of stripes, else 1 MiB blocks",
));
const LOGS: ImportRule = Comment(same("messages go to the journal; RUST_LOG=debug says more"));
const USAGE: ImportRule = Comment(same("nothing is ever sent to anybody about the use"));
const ANONYMOUS_ACCOUNT: ImportRule = Comment(decide(
    "anonymous sessions have the account of run-as, as all others",
));
const HOME: ImportRule = Comment(decide(
    "longhaul user add --home PATH is where sessions of an account begin; others begin in the root",
));
const MODULES: ImportRule = Comment(missing(
    "modules of the globus server (DSI, ACL, XIO drivers)",
));
const ENVIRONMENT: ImportRule = Comment(same(
    "longhaul reads no GLOBUS_ variable, but for X509_CERT_DIR",
));

/// How each option maps.
pub(super) const TABLE: &[(&str, ImportRule)] = &[
    ("$GLOBUS_TCP_PORT_RANGE", Value("data-ports", Ports)),
    (
        "$GLOBUS_TCP_SOURCE_RANGE",
        Comment(missing("range of the ports from which it connects")),
    ),
    ("$GLOBUS_HOSTNAME", Combined),
    ("$GLOBUS_ERROR_VERBOSE", ENVIRONMENT),
    ("$GLOBUS_ERROR_OUTPUT", ENVIRONMENT),
    ("$GLOBUS_THREAD_MODEL", ENVIRONMENT),
    ("$GRIDMAP", Combined),
    ("$X509_CERT_DIR", Value("ca-dir", Directory)),
    ("$X509_USER_CERT", Combined),
    ("$X509_USER_KEY", Combined),
    ("acl", MODULES),
    ("allow_anonymous", Combined),
    (
        "allow_disabled_login",
        Comment(same(
            "the gridmap decides; accounts of the system are not looked at",
        )),
    ),
    ("allow_from", Combined),
    ("allow_root", Comment(missing("logins as root"))),
    (
        "allow_udt",
        Switch(Says(missing("UDT; it tunes TCP for the path")), OFF),
    ),
    ("anonymous_group", ANONYMOUS_ACCOUNT),
    (
        "anonymous_names_allowed",
        Comment(same("anonymous and ftp are anonymous")),
    ),
    ("anonymous_user", Combined),
    ("auth_level", Combined),
    ("auth_ldap", MODULES),
    ("banner", Value("banner", Text)),
    (
        "banner_append",
        Comment(same("banner-file comes before the greeting")),
    ),
    ("banner_file", Value("banner-file", File)),
    (
        "banner_terse",
        Comment(same("banner is the whole greeting")),
    ),
    (
        "blocksize",
        Comment(same("block sizes need no setting (block, io)")),
    ),
    ("cas", MODULES),
    ("chdir", PROCESS),
    ("chdir_to", PROCESS),
    ("chroot_path", Combined),
    ("config_base_path", PROCESS),
    (
        "connections_disabled",
        Switch(Says(decide("stop the service instead")), OFF),
    ),
    ("connections_max", Value("max-sessions", Count)),
    ("control_idle_timeout", Value("idle-timeout", Seconds)),
    ("control_interface", Combined),
    ("control_preauth_timeout", Value("login-timeout", Seconds)),
    ("daemon", PROCESS),
    ("data_interface", Combined),
    ("data_node", NODES),
    ("dc_whitelist", MODULES),
    ("debug", PROCESS),
    ("deny_from", Combined),
    ("detach", PROCESS),
    (
        "disable_command_list",
        Comment(decide(
            "rights are per account (longhaul user add --read-only), not per command",
        )),
    ),
    ("disable_usage_stats", USAGE),
    (
        "encrypt_data",
        Switch(Key("require-protection", "\"data\""), OFF),
    ),
    ("epsv_ip", Comment(same("replies to EPSV follow RFC 2428"))),
    (
        "epsv_match",
        Comment(same("replies to EPSV follow RFC 2428")),
    ),
    ("exec", PROCESS),
    (
        "file_timeout",
        Comment(missing(
            "limit of the time of disk accesses; stall-timeout bounds a transfer",
        )),
    ),
    ("fork", PROCESS),
    ("fs_whitelist", MODULES),
    ("home_dir", HOME),
    ("hostname", Combined),
    ("hybrid", NODES),
    ("inetd", PROCESS),
    ("ipc_allow_from", NODES),
    ("ipc_auth_mode", NODES),
    ("ipc_connect_timeout", NODES),
    ("ipc_deny_from", NODES),
    ("ipc_idle_timeout", NODES),
    ("ipc_interface", NODES),
    ("ipc_port", NODES),
    ("load_dsi_module", MODULES),
    ("log_filemode", LOGS),
    ("log_level", LOGS),
    ("log_module", LOGS),
    ("log_single", LOGS),
    ("log_transfer", Value("ftp-info-log", Text)),
    ("log_unique", LOGS),
    (
        "login_msg",
        Comment(decide("welcome-file has the lines that follow a login")),
    ),
    ("login_msg_file", Value("welcome-file", File)),
    (
        "offline_msg",
        Comment(missing("text for a server that is switched off")),
    ),
    (
        "password_file",
        Comment(decide(
            "make each user with: longhaul user add --users FILE NAME, and set users; passwords cannot be taken over",
        )),
    ),
    ("perms", Value("file-mode", Mode)),
    ("pidfile", PROCESS),
    ("popen_whitelist", MODULES),
    ("port", Combined),
    ("port_range", Value("data-ports", Ports)),
    (
        "process_group",
        Comment(same("the server has the groups of the account of run-as")),
    ),
    ("process_user", Value("run-as", Text)),
    ("remote_nodes", NODES),
    ("restrict_paths", Combined),
    (
        "rp_follow_symlinks",
        Switch(
            Says(missing("links that lead out of the root")),
            Says(same("links that lead out of the root are not followed")),
        ),
    ),
    ("secure_ipc", NODES),
    ("sharing_control", SHARING),
    ("sharing_dn", SHARING),
    ("sharing_groups_allow", SHARING),
    ("sharing_groups_deny", SHARING),
    ("sharing_rp", SHARING),
    ("sharing_state_dir", SHARING),
    ("sharing_users_allow", SHARING),
    ("sharing_users_deny", SHARING),
    ("single", PROCESS),
    (
        "ssh",
        Comment(same(
            "longhaul serve --sshftp-script makes the script for sshftp: URLs",
        )),
    ),
    ("stripe_blocksize", STRIPES),
    ("stripe_blocksize_locked", STRIPES),
    ("stripe_count", STRIPES),
    ("stripe_layout", STRIPES),
    ("stripe_layout_locked", STRIPES),
    (
        "sync_writes",
        Switch(
            Says(same(
                "a stored file is on disk when the server says so (sync-policy)",
            )),
            Key("sync-policy", "\"none\""),
        ),
    ),
    ("threads", PROCESS),
    (
        "udt",
        Switch(Says(missing("UDT; it tunes TCP for the path")), OFF),
    ),
    ("usage_stats_id", USAGE),
    ("usage_stats_target", USAGE),
    ("use_home_dirs", HOME),
];

/// Translates what several options say together, and what the server does without any.
pub(super) fn combine(directives: &[ForeignDirective], out: &mut Translation) {
    listen(directives, out);
    let read_only = root(directives, out);
    logins(directives, read_only, out);
    for (name, key) in [("allow_from", "allow-from"), ("deny_from", "deny-from")] {
        if let Some(from) = last(directives, name) {
            let value = from.value();
            let networks: Option<Vec<String>> = names(&value).into_iter().map(network).collect();
            match networks.filter(|networks| !networks.is_empty()) {
                Some(networks) => out.set(key, quoted_list(&networks), from),
                None => out.remark(
                    from,
                    &decide("a part of an address that is no network, such as 192.0.2.0/24"),
                ),
            }
        }
    }
}

fn listen(directives: &[ForeignDirective], out: &mut Translation) {
    let get = |name: &str| last(directives, name);
    let address_of = |from: &ForeignDirective| from.value().parse::<IpAddr>().ok();
    let control = get("control_interface").or_else(|| get("hostname"));
    let address = match control {
        Some(from) => address_of(from).unwrap_or_else(|| {
            out.remark(
                from,
                &decide("listen wants an address and no name; it has all addresses so far"),
            );
            IpAddr::from([0_u16; 8])
        }),
        None => IpAddr::from([0_u16; 8]),
    };
    let port = get("port").and_then(|from| from.value().parse().ok());
    let address = quoted(&SocketAddr::from((address, port.unwrap_or(2811))).to_string());
    let reason = "default: the port of GridFTP, all addresses";
    out.set_together("listen", address, [get("port"), control], reason);
    for name in ["$GLOBUS_HOSTNAME", "data_interface", "hostname"] {
        let Some(from) = get(name) else { continue };
        match address_of(from) {
            Some(IpAddr::V4(address)) => {
                out.set("public-address", quoted(&address.to_string()), from);
            }
            _ => out.remark(
                from,
                &decide("public-address is needed behind NAT only, and is an IPv4 address"),
            ),
        }
    }
}

/// A path of restrict_paths, and what sessions may do there.
struct RestrictedPath<'v> {
    path: &'v str,
    reads: bool,
    writes: bool,
}

impl RestrictedPath<'_> {
    /// Whether it can be a root, also below another directory.
    fn is_root(&self) -> bool {
        let leads_up = self.path.split('/').any(|name| name == "..");
        (self.reads || self.writes) && self.path.starts_with('/') && !leads_up
    }
}

/// The paths of restrict_paths: R and W before a path permit only that, N nothing, and no letter everything.
fn restricted_paths(value: &str) -> Vec<RestrictedPath<'_>> {
    let parts = value.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (letters, path) = part.split_at(part.find(['/', '~']).unwrap_or(part.len()));
            let permits = |letter: [char; 2]| letters.is_empty() || letters.contains(letter);
            let is_closed = letters.contains(['N', 'n']);
            RestrictedPath {
                path,
                reads: !is_closed && permits(['R', 'r']),
                writes: !is_closed && permits(['W', 'w']),
            }
        })
        .collect()
}

/// The restrictions that the settings do not have, in words.
fn lost_restrictions(paths: &[RestrictedPath<'_>], is_read_only: bool) -> Vec<String> {
    let in_words = |restricted: &RestrictedPath<'_>| {
        let access = match (restricted.reads, restricted.writes) {
            (true, true) => return None,
            (true, false) if is_read_only => return None,
            (true, false) => "could only be read",
            (false, true) => "could only be written",
            (false, false) => "was closed",
        };
        Some(format!("{} {access}", restricted.path))
    };
    let mut lost: Vec<String> = paths.iter().filter_map(in_words).collect();
    if !paths.iter().any(|restricted| restricted.path == "/") {
        lost.push("what no path names was closed".to_owned());
    }
    lost
}

/// Sets the root, and returns the line that permits no writing anywhere, if there is one.
fn root<'d>(
    directives: &'d [ForeignDirective],
    out: &mut Translation,
) -> Option<&'d ForeignDirective> {
    let chroot = last(directives, "chroot_path");
    let Some(from) = last(directives, "restrict_paths") else {
        whole_root(chroot, out);
        return None;
    };
    let value = from.value();
    let paths = restricted_paths(&value);
    let is_read_only = !paths.is_empty() && paths.iter().all(|restricted| !restricted.writes);
    let above = chroot.map(ForeignDirective::value).unwrap_or_default();
    let is_above = above.is_empty() || above.starts_with('/');
    match paths.as_slice() {
        [only] if only.is_root() && is_above => {
            let path = format!("{}{}", above.trim_end_matches('/'), only.path);
            out.set_together("root", quoted(&path), [chroot, Some(from)], "");
            out.remark(
                from,
                &decide("the path is the root now, so it is / for clients, and URLs get shorter"),
            );
            if !only.reads {
                out.remark(from, &missing("right to write without that to read"));
            }
        }
        paths => {
            whole_root(chroot, out);
            let lost = lost_restrictions(paths, is_read_only);
            if !lost.is_empty() {
                let question = format!(
                    "only the permissions of run-as bind here, and these bounds are lost: {}; one root per account serves less: longhaul user add --root DIR NAME",
                    lost.join(", ")
                );
                out.remark(from, &ImportRemark::Decide(question.into()));
            }
        }
    }
    if !is_read_only {
        return None;
    }
    out.remark(
        from,
        &decide(
            "nothing could be written: longhaul user add needs --read-only for each account, too",
        ),
    );
    Some(from)
}

/// The root without restricted paths.
fn whole_root(chroot: Option<&ForeignDirective>, out: &mut Translation) {
    if let Some(from) = chroot {
        return Directory.set("root", from, out);
    }
    out.set_by_default(
        "root",
        quoted("/"),
        "default there: everything that permissions allow",
    );
    out.ask("root = \"/\" serves every file that the account of run-as may read; name the directory with the data");
}

/// GSI with the usual files, unless it is switched off. `read_only`: the line that permits no writing.
fn logins(
    directives: &[ForeignDirective],
    read_only: Option<&ForeignDirective>,
    out: &mut Translation,
) {
    let get = |name: &str| last(directives, name);
    let files = [
        ("$GRIDMAP", "gridmap", "/etc/grid-security/grid-mapfile"),
        ("$X509_USER_CERT", "cert", "/etc/grid-security/hostcert.pem"),
        ("$X509_USER_KEY", "key", "/etc/grid-security/hostkey.pem"),
    ];
    let level = get("auth_level");
    let is_open = level.is_some_and(|from| from.value() == "0");
    if is_open {
        if let Some(from) = level {
            out.remark(
                from,
                &missing("server without any login; anonymous = \"ro\" or \"rw\" is the nearest"),
            );
        }
    } else {
        for (name, key, usual) in files {
            match get(name) {
                Some(from) => File.set(key, from, out),
                None => {
                    out.set_by_default(key, quoted(usual), "default there");
                    out.needs_file(usual);
                }
            }
        }
        if let Some(from) = read_only {
            out.set("gridmap-rights", quoted("ro"), from);
        }
        out.ask("all sessions have the account of run-as and its permissions, not those of the account in the gridmap; longhaul user add gives an account its root");
    }
    let Some(from) = get("allow_anonymous").filter(|from| from.is_on() == Some(true)) else {
        return;
    };
    out.set("anonymous", quoted("ro"), from);
    if read_only.is_none() {
        out.ask("anonymous sessions could write where permissions allowed it: anonymous = \"rw\" does the same; set quota with it");
    }
    if let Some(from) = get("anonymous_user").filter(|_| get("process_user").is_none()) {
        out.set("run-as", quoted(&from.value()), from);
    }
}

/// The network that the beginning of an address means: `192.168.1.` is 192.168.1.0/24.
fn network(fragment: &str) -> Option<String> {
    if fragment.parse::<IpAddr>().is_ok() {
        return Some(fragment.to_owned());
    }
    let parts = fragment.strip_suffix('.')?.split('.');
    let mut octets = parts
        .map(|part| part.parse::<u8>().ok())
        .collect::<Option<Vec<u8>>>()?;
    let bits = octets.len() * 8;
    if !(8..32).contains(&bits) {
        return None;
    }
    octets.resize(4, 0);
    let address: Vec<String> = octets.iter().map(u8::to_string).collect();
    Some(format!("{}/{bits}", address.join(".")))
}
