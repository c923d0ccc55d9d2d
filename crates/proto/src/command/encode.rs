//! Encoding of commands as lines.

use super::argument::{
    DataType, EpsvArgument, ExtendedRetrieve, ExtendedStore, RestartMarker, TransferMode,
    TriggerEvent,
};
use super::{Command, RawArgument};
use crate::address;
use crate::feature::BUNDLE_MODULE;
use crate::security::{DataChannelAuth, DataCredential, ProtectionLevel, Secret, encode_base64};
use crate::stripes::StripeAddresses;

/// Length of the CR LF that the caller appends, bytes.
const LINE_ENDING: usize = 2;

pub(super) fn encode(command: &Command) -> Vec<u8> {
    let verb = command.verb().as_bytes();
    // It may be a password, so no memory that is freed keeps it: this copy is overwritten, and the
    // line has room for all of it and for its ending.
    let argument = argument(command).map(Secret);
    let length = argument.as_ref().map_or(0, |argument| argument.0.len());
    let mut line = Vec::with_capacity(verb.len() + 1 + length + LINE_ENDING);
    line.extend_from_slice(verb);
    if let Some(argument) = &argument {
        line.push(b' ');
        // A line break inside a file name would inject a second command.
        line.extend(argument.0.iter().map(|b| match b {
            b'\r' | b'\n' | 0 => b'?',
            other => *other,
        }));
    }
    line
}

/// The argument after the verb; `None` if there is none.
fn argument(command: &Command) -> Option<RawArgument> {
    use Command as C;
    let text = match command {
        C::Retr(path)
        | C::Stor(path)
        | C::Appe(path)
        | C::Size(path)
        | C::Mdtm(path)
        | C::Cwd(path)
        | C::Mkd(path)
        | C::Rmd(path)
        | C::Dele(path)
        | C::Rnfr(path)
        | C::Rnto(path) => return Some(path.clone()),
        C::Stat(path)
        | C::Stou(path)
        | C::List(path)
        | C::Nlst(path)
        | C::Mlst(path)
        | C::Mlsd(path)
        | C::Mlsc(path)
        | C::Mlsr(path) => return path.clone(),
        C::Get(request) | C::Put(request) => return Some(request.encode()),
        C::Pass(secret) => return Some(secret.0.clone()),
        C::Eret(ExtendedRetrieve::Partial { offset, length }, path) => {
            return Some(with_path(&format!("P {offset} {length}"), path));
        }
        C::Esto(ExtendedStore::Adjusted { offset }, path) => {
            return Some(with_path(&format!("A {offset}"), path));
        }
        C::Eret(ExtendedRetrieve::Bundle { count }, path)
        | C::Esto(ExtendedStore::Bundle { count }, path) => {
            return Some(with_path(&format!("{BUNDLE_MODULE} {count}"), path));
        }
        C::Mfmt(time, path) => return Some(with_path(&time.format(), path)),
        C::Cksm {
            algorithm,
            offset,
            length,
            path,
        } => {
            let length = length.map_or("-1".to_owned(), |n| n.to_string());
            let head = format!("{} {offset} {length}", algorithm.name());
            return Some(with_path(&head, path));
        }
        C::Opts(opts) => return Some(opts.encode().into_bytes()),
        C::Site(site) => return Some(site.encode()),
        C::Help(text) | C::Lang(text) => return text.clone().map(String::into_bytes),
        // `AUTH` without argument must not get a trailing space.
        C::Auth(mechanism) if mechanism.is_empty() => return None,
        C::Adat(token) | C::Mic(token) | C::Conf(token) | C::Enc(token) => token.encode(),
        C::User(text) | C::Acct(text) | C::Clnt(text) | C::Auth(text) => text.clone(),
        parameter => return parameter_text(parameter).map(String::into_bytes),
    };
    Some(text.into_bytes())
}

/// The argument of a command that takes neither a path nor free text.
fn parameter_text(command: &Command) -> Option<String> {
    use Command as C;
    Some(match command {
        C::Type(DataType::Ascii) => "A".to_owned(),
        C::Type(DataType::Image) => "I".to_owned(),
        C::Mode(TransferMode::Stream) => "S".to_owned(),
        C::Mode(TransferMode::Extended) => "E".to_owned(),
        C::Stru(letter) => letter.to_string(),
        C::Allo(n) | C::Sbuf(n) => n.to_string(),
        C::Pbsz(n) => n.to_string(),
        C::Dcau(DataChannelAuth::None) => "N".to_owned(),
        C::Dcau(DataChannelAuth::SelfAuth) => "A".to_owned(),
        C::Dcau(DataChannelAuth::Subject(subject)) => format!("S {subject}"),
        C::Dcsc(DataCredential::Default) => "D".to_owned(),
        C::Dcsc(DataCredential::Pem(pem)) => format!("P {}", encode_base64(&pem.0)),
        C::Prot(level) => prot_letter(*level).to_owned(),
        C::Epsv(EpsvArgument::Any) | C::Spas(None) => return None,
        C::Epsv(EpsvArgument::All) => "ALL".to_owned(),
        C::Epsv(EpsvArgument::Family(family)) | C::Spas(Some(family)) => {
            family.number().to_string()
        }
        // PORT cannot hold IPv6. The planner uses EPRT then; this keeps encoding total.
        C::Port(addr) => address::format_port(*addr).unwrap_or_else(|| address::format_eprt(*addr)),
        C::Eprt(addr) => address::format_eprt(*addr),
        C::Spor(stripes) => spor_list(stripes),
        C::Dprt(address) => address.format(),
        C::Rest(RestartMarker::Offset(n)) => n.to_string(),
        // An empty argument would be a syntax error.
        C::Rest(RestartMarker::Ranges(ranges)) if ranges.is_empty() => "0-0".to_owned(),
        C::Rest(RestartMarker::Ranges(ranges)) => ranges.to_string(),
        C::Scks(algorithm, sum) => format!("{} {sum}", algorithm.name()),
        C::Trev(TriggerEvent::RestartMarker, seconds) => format!("RESTART {seconds}"),
        C::Trev(TriggerEvent::PerformanceMarker, seconds) => format!("PERF {seconds}"),
        _ => return None,
    })
}

fn with_path(head: &str, path: &[u8]) -> RawArgument {
    [head.as_bytes(), b" ", path].concat()
}

fn prot_letter(level: ProtectionLevel) -> &'static str {
    match level {
        ProtectionLevel::Clear => "C",
        ProtectionLevel::Safe => "S",
        ProtectionLevel::Confidential => "E",
        ProtectionLevel::Private => "P",
    }
}

/// Argument of SPOR: IPv4 addresses in PORT form, which every server supports, IPv6 in EPRT form.
fn spor_list(stripes: &StripeAddresses) -> String {
    let items: Vec<String> = stripes
        .as_slice()
        .iter()
        .map(|addr| address::format_port(*addr).unwrap_or_else(|| address::format_eprt(*addr)))
        .collect();
    items.join(" ")
}
