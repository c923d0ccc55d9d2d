//! Random command lines, mostly well formed, with existing, missing and forbidden names.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Names inside the root, through links, outside of the root, and odd ones.
const NAMES: &[&str] = &[
    "a",
    "b",
    "d",
    "d/a",
    "d/e",
    "d/e/b",
    "new",
    "new2",
    "d/new",
    "link",
    "out",
    "outdir",
    "outdir/inner",
    "abs",
    "etc/passwd",
    "loop",
    "dangling",
    ".",
    "..",
    "/",
    "//",
    "../outside/secret",
    "../../../../etc/passwd",
    "/../outside",
    "d/../../outside/dir",
    "./a",
    "a/",
    "a/b",
    " a",
    "a ",
    "-la",
    "*",
    "a\u{202e}b",
    "ä",
    "\u{1}",
    "new.longhaul-partial",
];

/// Lines without a name.
const WITHOUT_NAME: &[&str] = &[
    "NOOP",
    "PWD",
    "FEAT",
    "HELP",
    "SYST",
    "CDUP",
    "ABOR",
    "STAT",
    "PASV",
    "EPSV",
    "EPSV 1",
    "EPSV 2",
    "EPSV ALL",
    "SPAS",
    "REIN",
    "MODE S",
    "MODE E",
    "MODE B",
    "TYPE I",
    "TYPE A",
    "TYPE E",
    "STRU F",
    "STRU R",
    "OPTS RETR Parallelism=4,4,4;",
    "OPTS RETR Parallelism=9999,1,1;",
    "OPTS STOR",
    "OPTS MLST type;size;",
    "OPTS UTF8 ON",
    "OPTS PASV AllowDelayed=1;",
    "PBSZ 0",
    "PROT P",
    "PROT C",
    "AUTH TLS",
    "AUTH GSSAPI",
    "ADAT AAAA",
    "CCC",
    "ALLO 10",
    "ALLO 9223372036854775807",
    "SBUF 65536",
    "SBUF 9223372036854775807",
    "SITE HELP",
    "SITE WHOAMI",
    "SITE UMASK 000",
    "SITE IDLE 1",
    "REST 50",
    "REST 0",
    "REST 10-20,30-40",
    "REST 9223372036854775807",
    "REST 0-99999999999999999999",
    "TREV RESTART EVERY 1",
    "DCAU N",
    "DCAU A",
    "LANG en",
    "STOU",
    "SCKS MD5 0",
    "QUIT now",
    "PORT 127,0,0,1,0,1",
    "PORT 10,0,0,1,0,22",
    "PORT 1,2,3",
    "EPRT |1|127.0.0.1|1|",
    "EPRT |2|::1|99999|",
    "SPOR 127,0,0,1,0,9 127,0,0,1,0,9",
    "USER anonymous",
    "USER root",
    "PASS x@",
    "",
];

/// Lines with a name at the end.
const WITH_NAME: &[&str] = &[
    "RETR",
    "STOR",
    "APPE",
    "STOU",
    "LIST",
    "NLST",
    "MLSD",
    "MLST",
    "MLSR",
    "MLSC",
    "CWD",
    "DELE",
    "MKD",
    "RMD",
    "RNFR",
    "RNTO",
    "SIZE",
    "MDTM",
    "STAT",
    "SITE CHMOD 755",
    "SITE CHMOD 7777",
    "SITE CHGRP root",
    "SITE UTIME 20200101000000",
    "SITE RDEL",
    "SITE TRNC 10",
    "SITE TRNC 1000000",
    "SITE SYMLINK ../../outside",
    "SITE SYMLINK a",
    "SITE SYMLINKFROM",
    "SITE SYMLINKTO",
    "MFMT 20200101000000",
    "CKSM MD5 0 -1",
    "CKSM SHA256 10 20",
    "CKSM ADLER32 0 9223372036854775807",
    "ERET P 10 100",
    "ERET P 0 9223372036854775807",
    "ESTO A 0",
    "ESTO A 50000",
    "ESTO A 9223372036854775806",
    "ERET X 1 2",
    "SITE STORATTR modify=20200101000000;",
    "SITE",
    "STAT -l",
    "LIST -la",
    "XCWD",
    "XMKD",
    "XRMD",
];

fn pick<'a>(rng: &mut Pcg64Mcg, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

/// One command line without its end.
pub(crate) fn line(rng: &mut Pcg64Mcg) -> Vec<u8> {
    match rng.random_range(0..100) {
        0..=34 => pick(rng, WITHOUT_NAME).as_bytes().to_vec(),
        35..=92 => named(rng).into_bytes(),
        93..=95 => damaged(rng),
        96..=97 => junk(rng),
        _ => long(rng),
    }
}

/// A transfer or listing command.
pub(crate) fn transfer(rng: &mut Pcg64Mcg) -> Vec<u8> {
    let verb = pick(
        rng,
        &[
            "RETR",
            "STOR",
            "APPE",
            "ESTO A 0",
            "ESTO A 1000",
            "ERET P 5 500",
            "LIST",
            "MLSD",
            "NLST",
            "MLSR",
            "STOU",
        ],
    );
    format!("{verb} {}", pick(rng, NAMES)).into_bytes()
}

fn named(rng: &mut Pcg64Mcg) -> String {
    let space = if rng.random_ratio(1, 20) { "  " } else { " " };
    format!("{}{space}{}", pick(rng, WITH_NAME), pick(rng, NAMES))
}

/// A valid line with one byte changed, removed or inserted.
fn damaged(rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut line = named(rng).into_bytes();
    let at = rng.random_range(0..line.len());
    match rng.random_range(0..3) {
        0 => line[at] = rng.random(),
        1 => {
            line.remove(at);
        }
        _ => line.insert(at, rng.random()),
    }
    line
}

fn junk(rng: &mut Pcg64Mcg) -> Vec<u8> {
    (0..rng.random_range(0..200))
        .map(|_| rng.random::<u8>())
        .collect()
}

fn long(rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut line = b"CWD ".to_vec();
    line.resize(rng.random_range(200..20_000), b'x');
    line
}
