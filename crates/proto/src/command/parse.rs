//! Parsing of control lines into commands.

use super::argument::{
    DataType, EpsvArgument, ExtendedRetrieve, ExtendedStore, RestartMarker, TransferMode,
    TriggerEvent,
};
use super::words::{ArgumentWords, parse_number, split_at_space};
use super::{
    Command, CommandError, GetPutRequest, OptsCommand, ParsedCommand, RawArgument, SiteCommand,
};
use crate::address::{self, AddressError, AddressFamily};
use crate::checksum::ChecksumAlgorithm;
use crate::drs::DrsAddress;
use crate::feature::BUNDLE_MODULE;
use crate::ranges::{MAX_FILE_OFFSET, RangeSet};
use crate::security::{
    DataChannelAuth, DataCredential, MAX_CREDENTIAL, ProtectionLevel, Secret, SecurityToken,
    decode_base64,
};
use crate::timestamp::Timestamp;

/// Parser of the argument of one verb.
pub(super) type ArgumentParser = fn(ArgumentWords<'_>) -> ParsedCommand;

/// All known verbs with their argument parsers. The X verbs are those of RFC 775, which RFC 1123 §4.1.3.1
/// recommends servers to accept.
pub(super) const VERBS: &[(&str, ArgumentParser)] = &[
    ("ABOR", |_| Ok(Command::Abor)),
    // The sizes are proposals (GFD.20).
    ("ABUF", |_| Ok(Command::Abuf)),
    ("ACCT", |args| {
        args.required_text("account").map(Command::Acct)
    }),
    ("ADAT", |args| token(args).map(Command::Adat)),
    ("ALLO", allo),
    ("APPE", |args| args.required_path().map(Command::Appe)),
    ("AUTH", |args| {
        Ok(Command::Auth(args.optional_text().unwrap_or_default()))
    }),
    ("CCC", |_| Ok(Command::Ccc)),
    ("CDUP", |_| Ok(Command::Cdup)),
    ("CKSM", cksm),
    ("CLNT", |args| {
        args.required_text("client name").map(Command::Clnt)
    }),
    ("CONF", |args| token(args).map(Command::Conf)),
    ("CWD", |args| args.required_path().map(Command::Cwd)),
    ("DCAU", dcau),
    ("DCSC", dcsc),
    ("DELE", |args| args.required_path().map(Command::Dele)),
    ("DPRT", dprt),
    ("DPSV", |_| Ok(Command::Dpsv)),
    ("ENC", |args| token(args).map(Command::Enc)),
    ("EPRT", eprt),
    ("EPSV", epsv),
    ("ERET", eret),
    ("ESTO", esto),
    ("FEAT", |_| Ok(Command::Feat)),
    ("GET", |args| GetPutRequest::parse(args).map(Command::Get)),
    ("HELP", |args| Ok(Command::Help(args.optional_text()))),
    ("LANG", |args| Ok(Command::Lang(args.optional_text()))),
    ("LIST", |args| Ok(Command::List(path_after_options(args)))),
    ("MDTM", |args| args.required_path().map(Command::Mdtm)),
    ("MFMT", mfmt),
    ("MIC", |args| token(args).map(Command::Mic)),
    ("MKD", |args| args.required_path().map(Command::Mkd)),
    ("MLSC", |args| Ok(Command::Mlsc(args.optional_path()))),
    ("MLSD", |args| Ok(Command::Mlsd(args.optional_path()))),
    ("MLSR", |args| Ok(Command::Mlsr(args.optional_path()))),
    ("MLST", |args| Ok(Command::Mlst(args.optional_path()))),
    ("MODE", mode),
    ("NLST", |args| Ok(Command::Nlst(path_after_options(args)))),
    ("NOOP", |_| Ok(Command::Noop)),
    ("OPTS", |args| OptsCommand::parse(args).map(Command::Opts)),
    ("PASS", |args| {
        Ok(Command::Pass(Secret(args.remaining().to_vec())))
    }),
    ("PASV", |_| Ok(Command::Pasv)),
    ("PBSZ", |mut args| {
        let size = args.required_u32("buffer size")?;
        args.finish_with(Command::Pbsz(size))
    }),
    ("PORT", port),
    ("PROT", prot),
    ("PUT", |args| GetPutRequest::parse(args).map(Command::Put)),
    ("PWD", |_| Ok(Command::Pwd)),
    ("QUIT", |_| Ok(Command::Quit)),
    ("REIN", |_| Ok(Command::Rein)),
    ("REST", rest),
    ("RETR", |args| args.required_path().map(Command::Retr)),
    ("RMD", |args| args.required_path().map(Command::Rmd)),
    ("RNFR", |args| args.required_path().map(Command::Rnfr)),
    ("RNTO", |args| args.required_path().map(Command::Rnto)),
    ("SBUF", |mut args| {
        let size = args.required_number("buffer size")?;
        args.finish_with(Command::Sbuf(size))
    }),
    ("SCKS", scks),
    ("SITE", |args| SiteCommand::parse(args).map(Command::Site)),
    ("SIZE", |args| args.required_path().map(Command::Size)),
    ("SPAS", spas),
    ("SPOR", spor),
    ("STAT", |args| Ok(Command::Stat(args.optional_path()))),
    ("STOR", |args| args.required_path().map(Command::Stor)),
    ("STOU", |args| Ok(Command::Stou(args.optional_path()))),
    ("STRU", stru),
    ("SYST", |_| Ok(Command::Syst)),
    ("TREV", trev),
    ("TYPE", type_),
    ("USER", |args| {
        args.required_utf8("user name").map(Command::User)
    }),
    ("XCUP", |_| Ok(Command::Cdup)),
    ("XCWD", |args| args.required_path().map(Command::Cwd)),
    ("XMKD", |args| args.required_path().map(Command::Mkd)),
    ("XPWD", |_| Ok(Command::Pwd)),
    ("XRMD", |args| args.required_path().map(Command::Rmd)),
    ("HASH", not_implemented),
    ("HOST", not_implemented),
    ("LPRT", not_implemented),
    ("LPSV", not_implemented),
    ("MFCT", not_implemented),
    ("MFF", not_implemented),
    ("PRET", not_implemented),
    ("RANG", not_implemented),
    ("SMNT", not_implemented),
    ("XCRC", not_implemented),
    ("XMD5", not_implemented),
    ("XSHA", not_implemented),
    ("XSHA1", not_implemented),
    ("XSHA256", not_implemented),
    ("XSHA512", not_implemented),
];

/// Most bytes of an unknown verb that an error quotes.
const MAX_QUOTED: usize = 32;

pub(super) fn parse(line: &[u8]) -> ParsedCommand {
    let (verb, argument) = split_at_space(line);
    let known = VERBS
        .iter()
        // The table is small, and a linear search needs no upper-case copy of a verb of unknown length.
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(verb));
    let Some((name, parser)) = known else {
        let quoted = &verb[..verb.len().min(MAX_QUOTED)];
        return Err(CommandError::UnknownVerb(
            String::from_utf8_lossy(quoted).into_owned(),
        ));
    };
    let words = ArgumentWords::new(name, argument);
    // A NUL would end a path early in system calls, so that two different names could mean one file.
    if argument.contains(&0) {
        return Err(words.syntax_error("NUL is not allowed"));
    }
    parser(words)
}

fn not_implemented(args: ArgumentWords<'_>) -> ParsedCommand {
    Err(CommandError::NotImplemented(args.verb))
}

/// Token in base64 (RFC 2228 §3, §9). Errors do not quote it, since it is secret.
fn token(mut args: ArgumentWords<'_>) -> Result<SecurityToken, CommandError> {
    let text = args.required_word("security data")?;
    let token = SecurityToken::decode(text.as_bytes());
    let token = token.map_err(|e| args.syntax_error(format!("security data is {e}")))?;
    args.finish_with(token)
}

/// Path after `ls` options, which are skipped. Options are words that start with `-`; several spaces may
/// precede them.
fn path_after_options(mut args: ArgumentWords<'_>) -> Option<RawArgument> {
    while args.remaining_trimmed().starts_with(b"-") {
        args.next_word();
    }
    args.optional_path()
}

/// A one-letter argument in upper case; `None` if it is anything else.
fn letter(word: &str) -> Option<char> {
    let mut chars = word.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii_alphabetic() => Some(c.to_ascii_uppercase()),
        _ => None,
    }
}

/// `ALLO size [R record-size]` (RFC 959 §4.1.3).
fn allo(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let size = args.required_number("size")?;
    match args.next_word() {
        None => {}
        // The record size is checked but not used, since only file structure is supported.
        Some(b"R" | b"r") => {
            args.required_number("record size")?;
        }
        Some(_) => return Err(args.syntax_error("too many arguments")),
    }
    args.finish_with(Command::Allo(size))
}

/// `TYPE A [N]`, `TYPE I`, `TYPE L 8` (RFC 959 §3.1.1).
fn type_(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let type_ = letter(args.required_word("type")?)
        .ok_or_else(|| args.syntax_error("type is one letter"))?;
    let form = args.next_word().unwrap_or_default();
    match (type_, form) {
        // On machines with 8-bit bytes `L 8` is the same as `I` (RFC 959 §3.1.1.4).
        ('I', b"") | ('L', b"8") => args.finish_with(Command::Type(DataType::Image)),
        ('I', _) => Err(args.syntax_error("too many arguments")),
        ('A', b"" | b"N" | b"n") => args.finish_with(Command::Type(DataType::Ascii)),
        _ => Err(args.unsupported("only A, A N, I and L 8 are offered")),
    }
}

fn mode(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let mode = letter(args.required_word("mode")?)
        .ok_or_else(|| args.syntax_error("mode is one letter"))?;
    match mode {
        'S' => args.finish_with(Command::Mode(TransferMode::Stream)),
        'E' => args.finish_with(Command::Mode(TransferMode::Extended)),
        _ => Err(args.unsupported("only S and E are offered")),
    }
}

fn stru(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let letter = letter(args.required_word("structure")?);
    let code = letter.ok_or_else(|| args.syntax_error("structure is one letter"))?;
    args.finish_with(Command::Stru(code))
}

fn dcau(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let mode = letter(args.required_word("mode")?)
        .ok_or_else(|| args.syntax_error("mode is one letter"))?;
    match mode {
        'N' => args.finish_with(Command::Dcau(DataChannelAuth::None)),
        'A' => args.finish_with(Command::Dcau(DataChannelAuth::SelfAuth)),
        'S' => {
            // A distinguished name contains spaces, so the subject is the rest of the line.
            let subject = args.required_utf8("subject")?;
            Ok(Command::Dcau(DataChannelAuth::Subject(subject)))
        }
        _ => Err(args.unsupported("only N, A and S are defined")),
    }
}

/// `DCSC D`, or `DCSC P base64`. Errors do not quote the credential, since it holds a private key.
fn dcsc(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let kind = letter(args.required_word("type")?)
        .ok_or_else(|| args.syntax_error("type is one letter"))?;
    let credential = match kind {
        'D' => DataCredential::Default,
        'P' => {
            let text = args.required_word("credential")?;
            if text.len() > MAX_CREDENTIAL.div_ceil(3) * 4 {
                return Err(args.syntax_error("the credential is too long"));
            }
            // The capacity keeps the bytes in one place, which is wiped.
            let mut pem = Secret(Vec::with_capacity(text.len()));
            decode_base64(text.as_bytes(), &mut pem.0)
                .ok_or_else(|| args.syntax_error("the credential is not base64"))?;
            if pem.0.len() > MAX_CREDENTIAL {
                return Err(args.syntax_error("the credential is too long"));
            }
            DataCredential::Pem(pem)
        }
        _ => return Err(args.unsupported("only D and P are offered")),
    };
    args.finish_with(Command::Dcsc(credential))
}

fn prot(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let level = letter(args.required_word("level")?)
        .ok_or_else(|| args.syntax_error("level is one letter"))?;
    let prot = match level {
        'C' => ProtectionLevel::Clear,
        'S' => ProtectionLevel::Safe,
        'E' => ProtectionLevel::Confidential,
        'P' => ProtectionLevel::Private,
        _ => return Err(args.unsupported("only C, S, E and P are defined")),
    };
    args.finish_with(Command::Prot(prot))
}

/// Maps an address error: a malformed address is a syntax error, an unsupported family is answered with
/// 522.
fn address_error(args: &ArgumentWords<'_>, error: AddressError) -> CommandError {
    match error {
        AddressError::UnsupportedProtocol => CommandError::Address(error),
        AddressError::Malformed => args.syntax_error(error.to_string()),
    }
}

fn port(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let text = args.required_word("host-port")?;
    let address = address::parse_port(text).map_err(|e| address_error(&args, e))?;
    args.finish_with(Command::Port(address))
}

fn eprt(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let text = args.required_word("host-port")?;
    let address = address::parse_eprt(text).map_err(|e| address_error(&args, e))?;
    args.finish_with(Command::Eprt(address))
}

fn spor(args: ArgumentWords<'_>) -> ParsedCommand {
    let text = args.required_text("host-port")?;
    address::parse_spor(&text)
        .map(Command::Spor)
        .map_err(|e| address_error(&args, e))
}

/// `DPRT |1|host|port|nonce|`
fn dprt(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let text = args.required_word("DRS address")?;
    let address = DrsAddress::parse(text).map_err(|e| match e {
        AddressError::UnsupportedProtocol => CommandError::Address(e),
        AddressError::Malformed => args.syntax_error("malformed DRS address"),
    })?;
    args.finish_with(Command::Dprt(address))
}

fn epsv(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let arg = match args.next_word() {
        None => EpsvArgument::Any,
        Some(word) if word.eq_ignore_ascii_case(b"ALL") => EpsvArgument::All,
        Some(word) => EpsvArgument::Family(family(&args, word)?),
    };
    args.finish_with(Command::Epsv(arg))
}

fn spas(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let family = args
        .next_word()
        .map(|word| family(&args, word))
        .transpose()?;
    args.finish_with(Command::Spas(family))
}

fn family(args: &ArgumentWords<'_>, word: &[u8]) -> Result<AddressFamily, CommandError> {
    AddressFamily::parse(&String::from_utf8_lossy(word)).map_err(|e| address_error(args, e))
}

/// `REST n` (RFC 3659 §5) or `REST a-b,c-d` (GFD.20 §3.7).
fn rest(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let word = args.required_word("marker")?;
    // A number alone is a byte offset; GridFTP ranges always contain `-`.
    if let Some(offset) = parse_number(word) {
        return args.finish_with(Command::Rest(RestartMarker::Offset(offset)));
    }
    let ranges = RangeSet::parse(word).map_err(|e| args.syntax_error(e.to_string()))?;
    // The driver computes with signed file offsets.
    if ranges.end() > MAX_FILE_OFFSET {
        return Err(args.syntax_error("beyond the end of any file"));
    }
    args.finish_with(Command::Rest(RestartMarker::Ranges(ranges)))
}

/// `ERET P offset length path` (GFD.20 §3.5). Some clients write `PARTIAL` instead of `P`.
fn eret(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let module = args.required_word("module")?;
    if module.eq_ignore_ascii_case(BUNDLE_MODULE) {
        let count = bundle_count(&mut args)?;
        let module = ExtendedRetrieve::Bundle { count };
        return Ok(Command::Eret(module, args.required_path()?));
    }
    if !["P", "PARTIAL"]
        .iter()
        .any(|name| module.eq_ignore_ascii_case(name))
    {
        return Err(args.unsupported("only module P is offered"));
    }
    let offset = args.required_number("offset")?;
    let length = args.required_number("length")?;
    Ok(Command::Eret(
        ExtendedRetrieve::Partial { offset, length },
        args.required_path()?,
    ))
}

fn bundle_count(args: &mut ArgumentWords<'_>) -> Result<usize, CommandError> {
    Ok(args.required_u32("number of files")? as usize)
}

/// `ESTO A offset path` (GFD.20 §3.6).
fn esto(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let module = args.required_word("module")?;
    if module.eq_ignore_ascii_case(BUNDLE_MODULE) {
        let count = bundle_count(&mut args)?;
        let module = ExtendedStore::Bundle { count };
        return Ok(Command::Esto(module, args.required_path()?));
    }
    if !module.eq_ignore_ascii_case("A") {
        return Err(args.unsupported("only module A is offered"));
    }
    let offset = args.required_number("offset")?;
    Ok(Command::Esto(
        ExtendedStore::Adjusted { offset },
        args.required_path()?,
    ))
}

fn mfmt(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let time = Timestamp::parse(args.required_word("time")?)
        .ok_or_else(|| args.syntax_error("time is not YYYYMMDDhhmmss"))?;
    Ok(Command::Mfmt(time, args.required_path()?))
}

/// `CKSM ALG offset length path`; length -1 means to the end of the file.
fn cksm(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let algorithm = algorithm(&mut args)?;
    let offset = args.required_number("offset")?;
    let length = match args.required_word("length")? {
        // GFD.47 defines -1 as "to the end of the file".
        "-1" => None,
        word => Some(
            parse_number(word).ok_or_else(|| args.syntax_error("length is not a number or -1"))?,
        ),
    };
    let path = args.required_path()?;
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

fn scks(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let algorithm = algorithm(&mut args)?;
    let hex = args.required_word("checksum")?;
    let hex = algorithm
        .parse_hex(hex)
        .ok_or_else(|| args.syntax_error(format!("not a {} checksum", algorithm.name())))?;
    args.finish_with(Command::Scks(algorithm, hex))
}

fn algorithm(args: &mut ArgumentWords<'_>) -> Result<ChecksumAlgorithm, CommandError> {
    let name = args.required_word("algorithm")?;
    ChecksumAlgorithm::parse(name).ok_or_else(|| args.unsupported("unknown checksum algorithm"))
}

fn trev(mut args: ArgumentWords<'_>) -> ParsedCommand {
    let event = match args.required_word("event")?.to_ascii_uppercase().as_str() {
        "RESTART" => TriggerEvent::RestartMarker,
        "PERF" => TriggerEvent::PerformanceMarker,
        _ => return Err(args.unsupported("only RESTART and PERF are offered")),
    };
    // A list of wanted fields may follow (GFD.20 §4.4). It is ignored, since markers always hold all
    // fields.
    Ok(Command::Trev(event, args.required_u32("period")?))
}
