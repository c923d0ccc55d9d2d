//! HELP and SITE HELP (RFC 959 §4.1.3).
//!
//! The globus client chooses features by words in the SITE HELP text: RETRBUFSIZE, STORBUFSIZE,
//! CHMOD, CHGRP, UTIME, SYMLINK, CLIENTINFO.

use crate::reply::Reply;

/// Verbs and their arguments, in the notation of RFC 959 §5.3.1.
const COMMANDS: [(&str, &str); 68] = [
    ("ABOR", ""),
    ("ABUF", "[<sp> sizes]"),
    ("ACCT", "<sp> account-information"),
    ("ADAT", "<sp> base64-token"),
    ("ALLO", "<sp> size"),
    ("APPE", "<sp> pathname"),
    ("AUTH", "<sp> mechanism"),
    ("CCC", ""),
    ("CDUP", ""),
    (
        "CKSM",
        "<sp> algorithm <sp> offset <sp> length <sp> pathname",
    ),
    ("CLNT", "<sp> client-name"),
    ("CONF", "<sp> base64-token"),
    ("CWD", "<sp> pathname"),
    ("DCAU", "<sp> N|A|S [<sp> subject]"),
    ("DCSC", "<sp> D|P [<sp> base64-credential]"),
    ("DELE", "<sp> pathname"),
    ("DPRT", "<sp> |family|address|port|nonce|"),
    ("DPSV", ""),
    ("ENC", "<sp> base64-token"),
    ("EPRT", "<sp> |family|address|port|"),
    ("EPSV", "[<sp> 1|2|ALL]"),
    ("ERET", "<sp> P <sp> offset <sp> length <sp> pathname"),
    ("ESTO", "<sp> A <sp> offset <sp> pathname"),
    ("FEAT", ""),
    ("GET", "<sp> path=pathname;pasv|port=host-port;[mode=S|E;]"),
    ("HELP", "[<sp> command]"),
    ("LANG", "[<sp> EN]"),
    ("LIST", "[<sp> pathname or pattern]"),
    ("MDTM", "<sp> pathname"),
    ("MFMT", "<sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("MIC", "<sp> base64-token"),
    ("MKD", "<sp> pathname"),
    ("MLSC", "[<sp> pathname]"),
    ("MLSD", "[<sp> pathname]"),
    ("MLSR", "[<sp> pathname]"),
    ("MLST", "[<sp> pathname]"),
    ("MODE", "<sp> S|E"),
    ("NLST", "[<sp> pathname]"),
    ("NOOP", ""),
    ("OPTS", "<sp> command <sp> options"),
    ("PASS", "<sp> password"),
    ("PASV", ""),
    ("PBSZ", "<sp> size"),
    ("PORT", "<sp> h1,h2,h3,h4,p1,p2"),
    ("PROT", "<sp> C|S|E|P"),
    ("PUT", "<sp> path=pathname;pasv|port=host-port;[mode=S|E;]"),
    ("PWD", ""),
    ("QUIT", ""),
    ("REIN", ""),
    ("REST", "<sp> offset or start-end,start-end,..."),
    ("RETR", "<sp> pathname"),
    ("RMD", "<sp> pathname"),
    ("RNFR", "<sp> pathname"),
    ("RNTO", "<sp> pathname"),
    ("SBUF", "<sp> bytes"),
    ("SCKS", "<sp> algorithm <sp> checksum"),
    ("SITE", "<sp> command; see HELP SITE"),
    ("SIZE", "<sp> pathname"),
    ("SPAS", "[<sp> 1|2]"),
    ("SPOR", "<sp> host-port [<sp> host-port]..."),
    ("STAT", "[<sp> pathname]"),
    ("STOR", "<sp> pathname"),
    ("STOU", "[<sp> pathname]"),
    ("STRU", "<sp> F"),
    ("SYST", ""),
    ("TREV", "<sp> RESTART|PERF <sp> seconds"),
    ("TYPE", "<sp> A|I"),
    ("USER", "<sp> name"),
];

/// SITE commands, one line each.
const SITE_COMMANDS: [&str; 24] = [
    "SITE HELP: help on server commands",
    "SITE SBUF: set send and receive buffers",
    "SITE RETRBUFSIZE: set send buffers",
    "SITE RBUFSZ: set send buffers",
    "SITE RBUFSIZ: set send buffers",
    "SITE STORBUFSIZE: set receive buffers",
    "SITE SBUFSZ: set receive buffers",
    "SITE SBUFSIZ: set receive buffers",
    "SITE BUFSIZE: set send and receive buffers",
    "SITE CHMOD <sp> mode <sp> pathname",
    "SITE CHGRP <sp> group <sp> pathname",
    "SITE UTIME <sp> YYYYMMDDHHMMSS <sp> pathname",
    "SITE SYMLINK <sp> target <sp> link-path",
    "SITE SYMLINKFROM <sp> reference-path",
    "SITE SYMLINKTO <sp> link-path",
    "SITE RDEL <sp> pathname",
    "SITE TRNC <sp> length <sp> pathname",
    "SITE CLIENTINFO <sp> appname=\"<name>\";appver=\"<version>\";scheme=\"<ftp,gsiftp>\";",
    "SITE TASKID <sp> taskid",
    "SITE STORATTR <sp> modify=YYYYMMDDHHMMSS;checksum.ALGORITHM=hex;",
    "SITE DATAPEER [<sp> address ...]: the other hosts of data connections",
    "SITE IDLE [<sp> seconds]",
    "SITE SETDISKSTACK <sp> file, SITE SETNETSTACK <sp> tcp[,gsi]",
    "SITE WHOAMI, SITE VERSION",
];

/// HELP, HELP SITE and HELP VERB.
pub(super) fn help(topic: Option<&str>) -> Reply {
    // The texts are those of the globus server, whose clients search SITE HELP.
    let Some(topic) = topic.map(str::trim).filter(|t| !t.is_empty()) else {
        return Reply::with_inner_lines(214, RECOGNIZED, verb_table(), "End");
    };
    if topic.eq_ignore_ascii_case("SITE") {
        return Reply::with_inner_lines(214, "Help for SITE:", site_lines(), "End.");
    }
    match COMMANDS
        .iter()
        .find(|(verb, _)| verb.eq_ignore_ascii_case(topic))
    {
        Some((verb, usage)) => {
            let line = format!("{verb} {usage}").trim_end().as_bytes().to_vec();
            Reply::with_inner_lines(214, &format!("Help for {verb}:"), vec![line], "End.")
        }
        None => Reply::new(502, format!("Unknown command '{topic}'.")),
    }
}

/// SITE HELP: the table of verbs, as the globus server sends it, and the SITE commands.
pub(super) fn site_help() -> Reply {
    let mut lines = verb_table();
    lines.extend(site_lines());
    Reply::with_inner_lines(214, RECOGNIZED, lines, "End")
}

const RECOGNIZED: &str = "The following commands are recognized:";

/// Table of verbs: eight verbs per line, each eight columns wide, after three spaces. The reply adds a
/// fourth space.
fn verb_table() -> Vec<Vec<u8>> {
    COMMANDS
        .chunks(8)
        .map(|row| {
            let mut line = "   ".to_owned();
            for (verb, _) in row {
                line.push_str(&format!("{verb:<8}"));
            }
            line.trim_end().as_bytes().to_vec()
        })
        .collect()
}

fn site_lines() -> Vec<Vec<u8>> {
    SITE_COMMANDS
        .iter()
        .map(|l| l.as_bytes().to_vec())
        .collect()
}
