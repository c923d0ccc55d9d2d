//! Contradictions between flags of `serve`. What the settings file adds is checked with it
//! (`ServeArgs::config`).

use std::net::SocketAddr;

use super::{Contradiction, TypedFlags};

pub(super) const RULES: &[Contradiction] = &[
    Contradiction {
        applies: |flags| flags.is("tls", &["required"]) && flags.has("clear_passwords"),
        line: "--tls required permits no login in clear, and --clear-passwords does: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.is("tls", &["off"])
                && flags.is("require_protection", &["data"])
                && !flags.has_any(&["gridmap", "config"])
        },
        line: "--tls off leaves no way to encrypt data, and --require-protection data asks for it: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("tls", &["off"]) && flags.is("tls_session_reuse", &["required"]),
        line: "--tls off leaves no sessions to reuse, and --tls-session-reuse required asks for them: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.is("tls", &["off"]) && flags.is("client_certs", &["optional", "required"])
        },
        line: "--tls off asks no client for a certificate, and --client-certs does: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("client_certs", &["none"]) && flags.has("client_ca"),
        line: "--client-certs none asks for no certificates that --client-ca could verify: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.has("gridmap_rights") && !flags.has_any(&["gridmap", "config"])
                || flags.has("ca_dir") && !flags.has_any(&["gridmap", "front_end", "config"])
        },
        line: "--gridmap-rights and --ca-dir are for --gridmap: give it, too, or leave them out",
    },
    Contradiction {
        applies: |flags| flags.has("data_node") && flags.has("front_end"),
        line: "--data-node is for a front end, and --front-end for its data nodes: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.has("front_end") && flags.has_any(&["anonymous", "users", "pam", "gridmap"])
        },
        line: "--front-end has no sessions of its own, and a login was given: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.has_any(&["pam_rights", "pam_min_uid"]) && !flags.has_any(&["pam", "config"])
        },
        line: "--pam-rights and --pam-min-uid are for --pam: give it, too, or leave them out",
    },
    Contradiction {
        applies: |flags| flags.is("third_party", &["none"]) && flags.has("foreign_data_addresses"),
        line: "--third-party none permits no data from other hosts, and --foreign-data-addresses does: leave one of them out",
    },
    Contradiction {
        applies: |flags| is_above(flags, "max_sessions_per_address", "max_sessions"),
        line: "--max-sessions-per-address is above --max-sessions, so it limits nothing",
    },
    Contradiction {
        applies: |flags| is_above(flags, "max_sessions_per_user", "max_sessions"),
        line: "--max-sessions-per-user is above --max-sessions, so it limits nothing",
    },
    Contradiction {
        applies: |flags| {
            let most = flags.value::<u32>("max_streams_per_transfer");
            let all = flags.value::<usize>("max_streams");
            matches!((most, all), (Some(most), Some(all)) if most as usize > all)
        },
        line: "--max-streams-per-transfer is above --max-streams, so it limits nothing",
    },
    Contradiction {
        applies: |flags| {
            let names = ["listen", "implicit_tls", "metrics"];
            // Port 0 is another port each time.
            let fixed = names.into_iter().filter(|name| {
                let address = flags.value::<SocketAddr>(name);
                address.is_some_and(|address| address.port() != 0)
            });
            flags.share_a_value(&fixed.collect::<Vec<_>>())
        },
        line: "--listen, --implicit-tls and --metrics need an address each, and two of them name the same one",
    },
    Contradiction {
        applies: |flags| flags.share_a_value(&["transfer_log", "ftp_info_log"]),
        line: "--transfer-log and --ftp-info-log need a file each, and name the same one",
    },
];

fn is_above(flags: TypedFlags<'_>, one: &str, other: &str) -> bool {
    let values = (flags.value::<usize>(one), flags.value::<usize>(other));
    matches!(values, (Some(one), Some(other)) if one > other)
}
