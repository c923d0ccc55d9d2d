//! Lines to commands.

use super::argument::{
    DataChannelAuth, DataType, EpsvArgument, ExtendedRetrieve, ProtectionLevel, RestartMarker,
    TransferMode, TriggerEvent,
};
use super::words::{ArgumentWords, parse_number, split_at_space};
use super::{
    Command, CommandError, MAX_FILE_OFFSET, OptsCommand, ParsedCommand, RawArgument, Secret,
    SiteCommand,
};
use crate::address::{self, AddressError, AddressFamily};
use crate::checksum::ChecksumAlgorithm;
use crate::drs::DrsAddress;
use crate::ranges::RangeSet;
use crate::security::SecurityToken;
use crate::timestamp::Timestamp;

/// How the argument of a verb is read.
pub(super) type ArgumentParser = fn(ArgumentWords<'_>) -> ParsedCommand;

/// Every verb that is known, and how its argument is read. The X verbs are those of RFC 775, which
/// RFC 1123 §4.1.3.1 asks servers to take.
pub(super) const VERBS: &[(&str, ArgumentParser)] = &[
    ("ABOR", |_| Ok(Command::Abor)),
    ("ACCT", |w| w.required_text("account").map(Command::Acct)),
    ("ADAT", |w| token(w).map(Command::Adat)),
    ("ALLO", allo),
    ("APPE", |w| w.required_path().map(Command::Appe)),
    ("AUTH", |w| {
        Ok(Command::Auth(w.optional_text().unwrap_or_default()))
    }),
    ("CCC", |_| Ok(Command::Ccc)),
    ("CDUP", |_| Ok(Command::Cdup)),
    ("CKSM", cksm),
    ("CLNT", |w| {
        w.required_text("client name").map(Command::Clnt)
    }),
    ("CONF", |w| token(w).map(Command::Conf)),
    ("CWD", |w| w.required_path().map(Command::Cwd)),
    ("DCAU", dcau),
    ("DELE", |w| w.required_path().map(Command::Dele)),
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
    ("MDTM", |w| w.required_path().map(Command::Mdtm)),
    ("MFMT", mfmt),
    ("MIC", |w| token(w).map(Command::Mic)),
    ("MKD", |w| w.required_path().map(Command::Mkd)),
    ("MLSC", |w| Ok(Command::Mlsc(w.optional_path()))),
    ("MLSD", |w| Ok(Command::Mlsd(w.optional_path()))),
    ("MLSR", |w| Ok(Command::Mlsr(w.optional_path()))),
    ("MLST", |w| Ok(Command::Mlst(w.optional_path()))),
    ("MODE", mode),
    ("NLST", |w| Ok(Command::Nlst(path_after_options(w)))),
    ("NOOP", |_| Ok(Command::Noop)),
    ("OPTS", |w| OptsCommand::parse(w).map(Command::Opts)),
    ("PASS", |w| {
        Ok(Command::Pass(Secret(w.remaining().to_vec())))
    }),
    ("PASV", |_| Ok(Command::Pasv)),
    ("PBSZ", |mut w| {
        let size = w.required_u32("buffer size")?;
        w.finish_with(Command::Pbsz(size))
    }),
    ("PORT", port),
    ("PROT", prot),
    ("PWD", |_| Ok(Command::Pwd)),
    ("QUIT", |_| Ok(Command::Quit)),
    ("REIN", |_| Ok(Command::Rein)),
    ("REST", rest),
    ("RETR", |w| w.required_path().map(Command::Retr)),
    ("RMD", |w| w.required_path().map(Command::Rmd)),
    ("RNFR", |w| w.required_path().map(Command::Rnfr)),
    ("RNTO", |w| w.required_path().map(Command::Rnto)),
    ("SBUF", |mut w| {
        let size = w.required_number("buffer size")?;
        w.finish_with(Command::Sbuf(size))
    }),
    ("SCKS", scks),
    ("SITE", |w| SiteCommand::parse(w).map(Command::Site)),
    ("SIZE", |w| w.required_path().map(Command::Size)),
    ("SPAS", spas),
    ("SPOR", spor),
    ("STAT", |w| Ok(Command::Stat(w.optional_path()))),
    ("STOR", |w| w.required_path().map(Command::Stor)),
    ("STOU", |w| Ok(Command::Stou(w.optional_path()))),
    ("STRU", stru),
    ("SYST", |_| Ok(Command::Syst)),
    ("TREV", trev),
    ("TYPE", type_),
    ("USER", |w| w.required_utf8("user name").map(Command::User)),
    ("XCUP", |_| Ok(Command::Cdup)),
    ("XCWD", |w| w.required_path().map(Command::Cwd)),
    ("XMKD", |w| w.required_path().map(Command::Mkd)),
    ("XPWD", |_| Ok(Command::Pwd)),
    ("XRMD", |w| w.required_path().map(Command::Rmd)),
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

pub(super) fn parse(line: &[u8]) -> ParsedCommand {
    let (verb, argument) = split_at_space(line);
    let known = VERBS
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(verb));
    let Some((name, parser)) = known else {
        let quoted = &verb[..verb.len().min(QUOTED)];
        return Err(CommandError::UnknownVerb(
            String::from_utf8_lossy(quoted).into_owned(),
        ));
    };
    let words = ArgumentWords::new(name, argument);
    if argument.contains(&0) {
        return Err(words.syntax_error("NUL is not allowed"));
    }
    parser(words)
}

fn not_implemented(w: ArgumentWords<'_>) -> ParsedCommand {
    Err(CommandError::NotImplemented(w.verb))
}

/// Base64 (RFC 2228 §3, §9). An error does not quote it.
fn token(mut w: ArgumentWords<'_>) -> Result<SecurityToken, CommandError> {
    let text = w.required_word("security data")?;
    let token = SecurityToken::decode(text.as_bytes());
    let token = token.map_err(|e| w.syntax_error(format!("security data is {e}")))?;
    w.finish_with(token)
}

/// Options are words that start with `-`, as `ls` has them; more than one space may stand before them.
fn path_after_options(mut w: ArgumentWords<'_>) -> Option<RawArgument> {
    while w.remaining_trimmed().starts_with(b"-") {
        w.next_word();
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
fn allo(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let size = w.required_number("size")?;
    match w.next_word() {
        None => {}
        Some(b"R" | b"r") => {
            w.required_number("record size")?;
        }
        Some(_) => return Err(w.syntax_error("too many arguments")),
    }
    w.finish_with(Command::Allo(size))
}

/// `TYPE A [N]`, `TYPE I`, `TYPE L 8` (RFC 959 §3.1.1).
fn type_(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let type_ =
        letter(w.required_word("type")?).ok_or_else(|| w.syntax_error("type is one letter"))?;
    let form = w.next_word().unwrap_or_default();
    match (type_, form) {
        ('I', b"") | ('L', b"8") => w.finish_with(Command::Type(DataType::Image)),
        ('I', _) => Err(w.syntax_error("too many arguments")),
        ('A', b"" | b"N" | b"n") => w.finish_with(Command::Type(DataType::Ascii)),
        _ => Err(w.unsupported("only A, A N, I and L 8 are offered")),
    }
}

fn mode(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let mode =
        letter(w.required_word("mode")?).ok_or_else(|| w.syntax_error("mode is one letter"))?;
    match mode {
        'S' => w.finish_with(Command::Mode(TransferMode::Stream)),
        'E' => w.finish_with(Command::Mode(TransferMode::Extended)),
        _ => Err(w.unsupported("only S and E are offered")),
    }
}

fn stru(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let letter = letter(w.required_word("structure")?);
    let code = letter.ok_or_else(|| w.syntax_error("structure is one letter"))?;
    w.finish_with(Command::Stru(code))
}

fn dcau(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let mode =
        letter(w.required_word("mode")?).ok_or_else(|| w.syntax_error("mode is one letter"))?;
    match mode {
        'N' => w.finish_with(Command::Dcau(DataChannelAuth::None)),
        'A' => w.finish_with(Command::Dcau(DataChannelAuth::SelfAuth)),
        'S' => {
            let subject = w.required_utf8("subject")?;
            Ok(Command::Dcau(DataChannelAuth::Subject(subject)))
        }
        _ => Err(w.unsupported("only N, A and S are defined")),
    }
}

fn prot(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let level =
        letter(w.required_word("level")?).ok_or_else(|| w.syntax_error("level is one letter"))?;
    let prot = match level {
        'C' => ProtectionLevel::Clear,
        'S' => ProtectionLevel::Safe,
        'E' => ProtectionLevel::Confidential,
        'P' => ProtectionLevel::Private,
        _ => return Err(w.unsupported("only C, S, E and P are defined")),
    };
    w.finish_with(Command::Prot(prot))
}

/// A malformed address is a syntax error, a family that is not offered is answered 522.
fn address_error(w: &ArgumentWords<'_>, error: AddressError) -> CommandError {
    match error {
        AddressError::UnsupportedProtocol => CommandError::Address(error),
        AddressError::Malformed => w.syntax_error(error.to_string()),
    }
}

fn port(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let text = w.required_word("host-port")?;
    let address = address::parse_port(text).map_err(|e| address_error(&w, e))?;
    w.finish_with(Command::Port(address))
}

fn eprt(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let text = w.required_word("host-port")?;
    let address = address::parse_eprt(text).map_err(|e| address_error(&w, e))?;
    w.finish_with(Command::Eprt(address))
}

fn spor(w: ArgumentWords<'_>) -> ParsedCommand {
    let text = w.required_text("host-port")?;
    address::parse_spor(&text)
        .map(Command::Spor)
        .map_err(|e| address_error(&w, e))
}

/// `DPRT |1|host|port|nonce|`
fn dprt(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let text = w.required_word("DRS address")?;
    let address = DrsAddress::parse(text).map_err(|e| match e {
        AddressError::UnsupportedProtocol => CommandError::Address(e),
        AddressError::Malformed => w.syntax_error("malformed DRS address"),
    })?;
    w.finish_with(Command::Dprt(address))
}

fn epsv(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let arg = match w.next_word() {
        None => EpsvArgument::Any,
        Some(word) if word.eq_ignore_ascii_case(b"ALL") => EpsvArgument::All,
        Some(word) => EpsvArgument::Family(family(&w, word)?),
    };
    w.finish_with(Command::Epsv(arg))
}

fn spas(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let family = w.next_word().map(|word| family(&w, word)).transpose()?;
    w.finish_with(Command::Spas(family))
}

fn family(w: &ArgumentWords<'_>, word: &[u8]) -> Result<AddressFamily, CommandError> {
    AddressFamily::parse(&String::from_utf8_lossy(word)).map_err(|e| address_error(w, e))
}

/// `REST n` (RFC 3659 §5) or `REST a-b,c-d` (GFD.20 §3.7).
fn rest(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let word = w.required_word("marker")?;
    if let Some(offset) = parse_number(word) {
        return w.finish_with(Command::Rest(RestartMarker::Offset(offset)));
    }
    let ranges = RangeSet::parse(word).map_err(|e| w.syntax_error(e.to_string()))?;
    if ranges.end() > MAX_FILE_OFFSET {
        return Err(w.syntax_error("beyond the end of any file"));
    }
    w.finish_with(Command::Rest(RestartMarker::Ranges(ranges)))
}

/// `ERET P offset length path` (GFD.20 §3.5); some clients spell the module out.
fn eret(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let module = w.required_word("module")?;
    if !["P", "PARTIAL"]
        .iter()
        .any(|name| module.eq_ignore_ascii_case(name))
    {
        return Err(w.unsupported("only module P is offered"));
    }
    let offset = w.required_number("offset")?;
    let length = w.required_number("length")?;
    Ok(Command::Eret(
        ExtendedRetrieve::Partial { offset, length },
        w.required_path()?,
    ))
}

/// `ESTO A offset path` (GFD.20 §3.6).
fn esto(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let module = w.required_word("module")?;
    if !module.eq_ignore_ascii_case("A") {
        return Err(w.unsupported("only module A is offered"));
    }
    let offset = w.required_number("offset")?;
    Ok(Command::Esto(offset, w.required_path()?))
}

fn mfmt(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let time = Timestamp::parse(w.required_word("time")?)
        .ok_or_else(|| w.syntax_error("time is not YYYYMMDDhhmmss"))?;
    Ok(Command::Mfmt(time, w.required_path()?))
}

/// `CKSM ALG offset length path`; length -1 means to the end of the file.
fn cksm(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let algorithm = algorithm(&mut w)?;
    let offset = w.required_number("offset")?;
    let length = match w.required_word("length")? {
        "-1" => None,
        word => {
            Some(parse_number(word).ok_or_else(|| w.syntax_error("length is not a number or -1"))?)
        }
    };
    let path = w.required_path()?;
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

fn scks(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let algorithm = algorithm(&mut w)?;
    let sum = w.required_word("checksum")?;
    let sum = algorithm
        .parse_hex(sum)
        .ok_or_else(|| w.syntax_error(format!("not a {} checksum", algorithm.name())))?;
    w.finish_with(Command::Scks(algorithm, sum))
}

fn algorithm(w: &mut ArgumentWords<'_>) -> Result<ChecksumAlgorithm, CommandError> {
    let name = w.required_word("algorithm")?;
    ChecksumAlgorithm::parse(name).ok_or_else(|| w.unsupported("unknown checksum algorithm"))
}

fn trev(mut w: ArgumentWords<'_>) -> ParsedCommand {
    let event = match w.required_word("event")?.to_ascii_uppercase().as_str() {
        "RESTART" => TriggerEvent::RestartMarker,
        "PERF" => TriggerEvent::PerformanceMarker,
        _ => return Err(w.unsupported("only RESTART and PERF are offered")),
    };
    // What may follow names the information that is wanted; all is told.
    Ok(Command::Trev(event, w.required_u32("period")?))
}
