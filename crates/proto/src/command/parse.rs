//! Lines to commands.

use super::argument::{Dcau, EpsvArg, Mode, Prot, Restart, Retrieve, TrevEvent, Type};
use super::words::{Words, parse_number, split_at_space};
use super::{Bytes, Command, CommandError, MAX_NUMBER, Opts, Parsed, Secret, Site};
use crate::address::{self, AddressError, Family};
use crate::checksum::Algorithm;
use crate::drs::DrsAddress;
use crate::ranges::RangeSet;
use crate::security::SecurityToken;
use crate::timestamp::Timestamp;

/// How the argument of a verb is read.
pub(super) type Parser = fn(Words<'_>) -> Parsed;

/// Every verb that is known, and how its argument is read. The X verbs are those of RFC 775, which
/// RFC 1123 §4.1.3.1 asks servers to take.
pub(super) const VERBS: &[(&str, Parser)] = &[
    ("ABOR", |_| Ok(Command::Abor)),
    ("ACCT", |w| w.text("account").map(Command::Acct)),
    ("ADAT", |w| token(w).map(Command::Adat)),
    ("ALLO", allo),
    ("APPE", |w| w.path().map(Command::Appe)),
    ("AUTH", |w| {
        Ok(Command::Auth(w.optional_text().unwrap_or_default()))
    }),
    ("CCC", |_| Ok(Command::Ccc)),
    ("CDUP", |_| Ok(Command::Cdup)),
    ("CKSM", cksm),
    ("CLNT", |w| w.text("client name").map(Command::Clnt)),
    ("CONF", |w| token(w).map(Command::Conf)),
    ("CWD", |w| w.path().map(Command::Cwd)),
    ("DCAU", dcau),
    ("DELE", |w| w.path().map(Command::Dele)),
    ("DPRT", dprt),
    ("DPSV", |_| Ok(Command::Dpsv)),
    ("ENC", |w| token(w).map(Command::Enc)),
    ("EPRT", eprt),
    ("EPSV", epsv),
    ("ERET", eret),
    ("ESTO", esto),
    ("FEAT", |_| Ok(Command::Feat)),
    ("HELP", |w| Ok(Command::Help(w.optional_text()))),
    ("LANG", |w| Ok(Command::Lang(w.optional_text()))),
    ("LIST", |w| Ok(Command::List(path_after_options(w)))),
    ("MDTM", |w| w.path().map(Command::Mdtm)),
    ("MFMT", mfmt),
    ("MIC", |w| token(w).map(Command::Mic)),
    ("MKD", |w| w.path().map(Command::Mkd)),
    ("MLSC", |w| Ok(Command::Mlsc(w.optional_path()))),
    ("MLSD", |w| Ok(Command::Mlsd(w.optional_path()))),
    ("MLSR", |w| Ok(Command::Mlsr(w.optional_path()))),
    ("MLST", |w| Ok(Command::Mlst(w.optional_path()))),
    ("MODE", mode),
    ("NLST", |w| Ok(Command::Nlst(path_after_options(w)))),
    ("NOOP", |_| Ok(Command::Noop)),
    ("OPTS", |w| Opts::parse(w).map(Command::Opts)),
    ("PASS", |w| Ok(Command::Pass(Secret(w.raw().to_vec())))),
    ("PASV", |_| Ok(Command::Pasv)),
    ("PBSZ", |mut w| {
        let size = w.small_number("buffer size")?;
        w.ending(Command::Pbsz(size))
    }),
    ("PORT", port),
    ("PROT", prot),
    ("PWD", |_| Ok(Command::Pwd)),
    ("QUIT", |_| Ok(Command::Quit)),
    ("REIN", |_| Ok(Command::Rein)),
    ("REST", rest),
    ("RETR", |w| w.path().map(Command::Retr)),
    ("RMD", |w| w.path().map(Command::Rmd)),
    ("RNFR", |w| w.path().map(Command::Rnfr)),
    ("RNTO", |w| w.path().map(Command::Rnto)),
    ("SBUF", |mut w| {
        let size = w.number("buffer size")?;
        w.ending(Command::Sbuf(size))
    }),
    ("SCKS", scks),
    ("SITE", |w| Site::parse(w).map(Command::Site)),
    ("SIZE", |w| w.path().map(Command::Size)),
    ("SPAS", spas),
    ("SPOR", spor),
    ("STAT", |w| Ok(Command::Stat(w.optional_path()))),
    ("STOR", |w| w.path().map(Command::Stor)),
    ("STOU", |w| Ok(Command::Stou(w.optional_path()))),
    ("STRU", stru),
    ("SYST", |_| Ok(Command::Syst)),
    ("TREV", trev),
    ("TYPE", type_),
    ("USER", |w| w.exact_text("user name").map(Command::User)),
    ("XCUP", |_| Ok(Command::Cdup)),
    ("XCWD", |w| w.path().map(Command::Cwd)),
    ("XMKD", |w| w.path().map(Command::Mkd)),
    ("XPWD", |_| Ok(Command::Pwd)),
    ("XRMD", |w| w.path().map(Command::Rmd)),
    ("ABUF", not_implemented),
    ("DCSC", not_implemented),
    ("GET", not_implemented),
    ("HASH", not_implemented),
    ("HOST", not_implemented),
    ("LPRT", not_implemented),
    ("LPSV", not_implemented),
    ("MFCT", not_implemented),
    ("MFF", not_implemented),
    ("PRET", not_implemented),
    ("PUT", not_implemented),
    ("RANG", not_implemented),
    ("SMNT", not_implemented),
    ("XCRC", not_implemented),
    ("XMD5", not_implemented),
    ("XSHA", not_implemented),
    ("XSHA1", not_implemented),
    ("XSHA256", not_implemented),
    ("XSHA512", not_implemented),
];

/// Bytes of an unknown verb that an error quotes.
const QUOTED: usize = 32;

pub(super) fn parse(line: &[u8]) -> Parsed {
    let (verb, argument) = split_at_space(line);
    let known = VERBS
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(verb));
    let Some((name, parser)) = known else {
        let quoted = &verb[..verb.len().min(QUOTED)];
        return Err(CommandError::Unknown(
            String::from_utf8_lossy(quoted).into_owned(),
        ));
    };
    let words = Words::new(name, argument);
    if argument.contains(&0) {
        return Err(words.syntax("NUL is not allowed"));
    }
    parser(words)
}

fn not_implemented(w: Words<'_>) -> Parsed {
    Err(CommandError::NotImplemented(w.verb))
}

/// Base64 (RFC 2228 §3, §9). An error does not quote it.
fn token(mut w: Words<'_>) -> Result<SecurityToken, CommandError> {
    let text = w.word("security data")?;
    let token = SecurityToken::decode(text.as_bytes());
    let token = token.map_err(|e| w.syntax(format!("security data is {e}")))?;
    w.ending(token)
}

/// Options are words that start with `-`, as `ls` has them; more than one space may stand before them.
fn path_after_options(mut w: Words<'_>) -> Option<Bytes> {
    while w.rest().starts_with(b"-") {
        w.next();
    }
    w.optional_path()
}

/// A one-letter argument in upper case; `None` when it is something else.
fn letter(word: &str) -> Option<char> {
    let mut chars = word.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii_alphabetic() => Some(c.to_ascii_uppercase()),
        _ => None,
    }
}

/// `ALLO size [R record-size]` (RFC 959 §4.1.3).
fn allo(mut w: Words<'_>) -> Parsed {
    let size = w.number("size")?;
    match w.next() {
        None => {}
        Some(b"R" | b"r") => {
            w.number("record size")?;
        }
        Some(_) => return Err(w.syntax("too many arguments")),
    }
    w.ending(Command::Allo(size))
}

/// `TYPE A [N]`, `TYPE I`, `TYPE L 8` (RFC 959 §3.1.1).
fn type_(mut w: Words<'_>) -> Parsed {
    let type_ = letter(w.word("type")?).ok_or_else(|| w.syntax("type is one letter"))?;
    let form = w.next().unwrap_or_default();
    match (type_, form) {
        ('I', b"") | ('L', b"8") => w.ending(Command::Type(Type::Image)),
        ('I', _) => Err(w.syntax("too many arguments")),
        ('A', b"" | b"N" | b"n") => w.ending(Command::Type(Type::Ascii)),
        _ => Err(w.not_offered("only A, A N, I and L 8 are offered")),
    }
}

fn mode(mut w: Words<'_>) -> Parsed {
    let mode = letter(w.word("mode")?).ok_or_else(|| w.syntax("mode is one letter"))?;
    match mode {
        'S' => w.ending(Command::Mode(Mode::Stream)),
        'E' => w.ending(Command::Mode(Mode::Extended)),
        _ => Err(w.not_offered("only S and E are offered")),
    }
}

fn stru(mut w: Words<'_>) -> Parsed {
    let letter = letter(w.word("structure")?);
    let code = letter.ok_or_else(|| w.syntax("structure is one letter"))?;
    w.ending(Command::Stru(code))
}

fn dcau(mut w: Words<'_>) -> Parsed {
    let mode = letter(w.word("mode")?).ok_or_else(|| w.syntax("mode is one letter"))?;
    match mode {
        'N' => w.ending(Command::Dcau(Dcau::None)),
        'A' => w.ending(Command::Dcau(Dcau::SelfAuth)),
        'S' => {
            let subject = w.exact_text("subject")?;
            Ok(Command::Dcau(Dcau::Subject(subject)))
        }
        _ => Err(w.not_offered("only N, A and S are defined")),
    }
}

fn prot(mut w: Words<'_>) -> Parsed {
    let level = letter(w.word("level")?).ok_or_else(|| w.syntax("level is one letter"))?;
    let prot = match level {
        'C' => Prot::Clear,
        'S' => Prot::Safe,
        'E' => Prot::Confidential,
        'P' => Prot::Private,
        _ => return Err(w.not_offered("only C, S, E and P are defined")),
    };
    w.ending(Command::Prot(prot))
}

/// A malformed address is a syntax error, a family that is not offered is answered 522.
fn address_error(w: &Words<'_>, error: AddressError) -> CommandError {
    match error {
        AddressError::Protocol => CommandError::Address(error),
        AddressError::Malformed => w.syntax(error.to_string()),
    }
}

fn port(mut w: Words<'_>) -> Parsed {
    let text = w.word("host-port")?;
    let address = address::parse_port(text).map_err(|e| address_error(&w, e))?;
    w.ending(Command::Port(address))
}

fn eprt(mut w: Words<'_>) -> Parsed {
    let text = w.word("host-port")?;
    let address = address::parse_eprt(text).map_err(|e| address_error(&w, e))?;
    w.ending(Command::Eprt(address))
}

fn spor(w: Words<'_>) -> Parsed {
    let text = w.text("host-port")?;
    address::parse_spor(&text)
        .map(Command::Spor)
        .map_err(|e| address_error(&w, e))
}

/// `DPRT |1|host|port|nonce|`
fn dprt(mut w: Words<'_>) -> Parsed {
    let text = w.word("DRS address")?;
    let address = DrsAddress::parse(text).map_err(|e| match e {
        AddressError::Protocol => CommandError::Address(e),
        AddressError::Malformed => w.syntax("malformed DRS address"),
    })?;
    w.ending(Command::Dprt(address))
}

fn epsv(mut w: Words<'_>) -> Parsed {
    let arg = match w.next() {
        None => EpsvArg::Any,
        Some(word) if word.eq_ignore_ascii_case(b"ALL") => EpsvArg::All,
        Some(word) => EpsvArg::Family(family(&w, word)?),
    };
    w.ending(Command::Epsv(arg))
}

fn spas(mut w: Words<'_>) -> Parsed {
    let family = w.next().map(|word| family(&w, word)).transpose()?;
    w.ending(Command::Spas(family))
}

fn family(w: &Words<'_>, word: &[u8]) -> Result<Family, CommandError> {
    Family::parse(&String::from_utf8_lossy(word)).map_err(|e| address_error(w, e))
}

/// `REST n` (RFC 3659 §5) or `REST a-b,c-d` (GFD.20 §3.7).
fn rest(mut w: Words<'_>) -> Parsed {
    let word = w.word("marker")?;
    if let Some(offset) = parse_number(word) {
        return w.ending(Command::Rest(Restart::Offset(offset)));
    }
    let ranges = RangeSet::parse(word).map_err(|e| w.syntax(e.to_string()))?;
    if ranges.end() > MAX_NUMBER {
        return Err(w.syntax("beyond the end of any file"));
    }
    w.ending(Command::Rest(Restart::Ranges(ranges)))
}

/// `ERET P offset length path` (GFD.20 §3.5); some clients spell the module out.
fn eret(mut w: Words<'_>) -> Parsed {
    let module = w.word("module")?;
    if !["P", "PARTIAL"]
        .iter()
        .any(|name| module.eq_ignore_ascii_case(name))
    {
        return Err(w.not_offered("only module P is offered"));
    }
    let offset = w.number("offset")?;
    let length = w.number("length")?;
    Ok(Command::Eret(
        Retrieve::Partial { offset, length },
        w.path()?,
    ))
}

/// `ESTO A offset path` (GFD.20 §3.6).
fn esto(mut w: Words<'_>) -> Parsed {
    let module = w.word("module")?;
    if !module.eq_ignore_ascii_case("A") {
        return Err(w.not_offered("only module A is offered"));
    }
    let offset = w.number("offset")?;
    Ok(Command::Esto(offset, w.path()?))
}

fn mfmt(mut w: Words<'_>) -> Parsed {
    let time =
        Timestamp::parse(w.word("time")?).ok_or_else(|| w.syntax("time is not YYYYMMDDhhmmss"))?;
    Ok(Command::Mfmt(time, w.path()?))
}

/// `CKSM ALG offset length path`; length -1 means to the end of the file.
fn cksm(mut w: Words<'_>) -> Parsed {
    let algorithm = algorithm(&mut w)?;
    let offset = w.number("offset")?;
    let length = match w.word("length")? {
        "-1" => None,
        word => Some(parse_number(word).ok_or_else(|| w.syntax("length is not a number or -1"))?),
    };
    let path = w.path()?;
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

fn scks(mut w: Words<'_>) -> Parsed {
    let algorithm = algorithm(&mut w)?;
    let sum = w.word("checksum")?;
    let sum = algorithm
        .parse_hex(sum)
        .ok_or_else(|| w.syntax(format!("not a {} checksum", algorithm.name())))?;
    w.ending(Command::Scks(algorithm, sum))
}

fn algorithm(w: &mut Words<'_>) -> Result<Algorithm, CommandError> {
    let name = w.word("algorithm")?;
    Algorithm::parse(name).ok_or_else(|| w.not_offered("unknown checksum algorithm"))
}

fn trev(mut w: Words<'_>) -> Parsed {
    let event = match w.word("event")?.to_ascii_uppercase().as_str() {
        "RESTART" => TrevEvent::Restart,
        "PERF" => TrevEvent::Perf,
        _ => return Err(w.not_offered("only RESTART and PERF are offered")),
    };
    // What may follow names the information that is wanted; all is told.
    Ok(Command::Trev(event, w.small_number("period")?))
}
