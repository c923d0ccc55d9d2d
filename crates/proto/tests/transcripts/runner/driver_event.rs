//! Parses `>` lines: events that the driver reports.

use proto::bundle::{BundleFailure, BundleOutcome, CHECKSUM};
use proto::drs::DrsAddress;
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::remark::{CompletionRemarks, LimiterReport};
use proto::security::SecurityToken;
use proto::server::{
    AccountRights, CompletedTransfer, DriverEvent, FileError, FileErrorKind, FileResponse,
    LoginFailure, LoginGrant, SecurityFailure, SecurityResponse, TransferError, TransferProgress,
};
use proto::stripes::StripeAddresses;

use super::script::unescape;

/// Parses the text after `> `.
pub(crate) fn parse(text: &str) -> Result<DriverEvent, String> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    match name {
        "Login" => login(rest),
        "Security" => security(rest),
        "DataCredential" => data_credential(rest),
        "File" => file(rest),
        "ChecksumProgress" => checksum_progress(rest),
        "Listening" => listening(rest),
        "DrsListening" => drs_listening(rest),
        "Resized" => number(Some(rest)).map(DriverEvent::BufferResized),
        "Opened" => opened(rest),
        "Progress" => progress(rest).map(DriverEvent::Progress),
        "Transferred" => transferred(rest).map(DriverEvent::Transferred),
        _ => Err(format!("unknown event: {text}")),
    }
}

/// `ready`, `continue TEXT`, `secured [identified] [TEXT]`, `read-ahead`, `unavailable TEXT` or `failed TEXT`.
fn security(text: &str) -> Result<DriverEvent, String> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let token = |text: &str| SecurityToken::new(text.into()).map_err(|e| e.to_string());
    Ok(DriverEvent::Security(match name {
        "ready" => Ok(SecurityResponse::Ready),
        "continue" => Ok(SecurityResponse::Continue(token(rest)?)),
        "secured" => {
            let identified = rest.starts_with("identified");
            let text = rest.trim_start_matches("identified").trim_start();
            let token = (!text.is_empty()).then(|| token(text)).transpose()?;
            Ok(SecurityResponse::Secured { token, identified })
        }
        "read-ahead" => Err(SecurityFailure::ReadAhead),
        "unavailable" => Err(SecurityFailure::Unavailable(rest.to_owned())),
        "failed" => Err(SecurityFailure::Failed(rest.to_owned())),
        _ => return Err(format!("unknown security event: {text}")),
    }))
}

/// `ok` or `failed TEXT`.
fn data_credential(text: &str) -> Result<DriverEvent, String> {
    let result = match text.split_once(' ') {
        None if text == "ok" => Ok(()),
        Some(("failed", reason)) => Err(reason.to_owned()),
        _ => return Err(format!("unknown credential event: {text}")),
    };
    Ok(DriverEvent::DataCredential(result))
}

/// `ok NAME [rw] [third-party] [| line]...`, `refused REASON` or `password-needed`.
fn login(text: &str) -> Result<DriverEvent, String> {
    if let Some(reason) = text.strip_prefix("refused ") {
        let failure = LoginFailure::Refused(reason.to_owned());
        return Ok(DriverEvent::Login(Err(failure)));
    }
    if text == "password-needed" {
        return Ok(DriverEvent::Login(Err(LoginFailure::PasswordNeeded)));
    }
    let mut parts = text.split(" | ");
    let words: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
    let ["ok", name, rights @ ..] = &words[..] else {
        return Err(format!("unknown login: {text}"));
    };
    let home = rights.iter().find(|w| w.starts_with('/')).unwrap_or(&"/");
    Ok(DriverEvent::Login(Ok(LoginGrant {
        user: (*name).to_owned(),
        home: path(home)?,
        rights: AccountRights {
            write: rights.contains(&"rw"),
            third_party: rights.contains(&"third-party"),
        },
        welcome_lines: parts.map(str::to_owned).collect(),
    })))
}

fn path(text: &str) -> Result<VPath, String> {
    VPath::root()
        .resolve(text.as_bytes())
        .map_err(|e| e.to_string())
}

/// `done`, `lines LINE | LINE ...`, `digest HEX`, `bundle OUTCOME` or `failed ERROR`.
fn file(text: &str) -> Result<DriverEvent, String> {
    let result = match text.split_once(' ').unwrap_or((text, "")) {
        ("done", _) => Ok(FileResponse::Done),
        ("lines", lines) => Ok(FileResponse::Lines(
            lines.split(" | ").map(Into::into).collect(),
        )),
        ("digest", hex) => Ok(FileResponse::Checksum(hex.to_owned())),
        ("bundle", outcome) => Ok(FileResponse::Bundle(Box::new(bundle_outcome(outcome)?))),
        ("failed", error) => Err(file_error(error)?),
        _ => return Err(format!("unknown answer: {text}")),
    };
    Ok(DriverEvent::File(result))
}

/// `HEX [sums HEX|-...] [| INDEX REASON]...`
fn bundle_outcome(text: &str) -> Result<BundleOutcome, String> {
    let mut parts = text.split(" | ");
    let mut words = parts.next().unwrap_or_default().split(' ');
    let hex = words.next().unwrap_or_default().to_owned();
    let sums = match words.next() {
        None => Vec::new(),
        Some("sums") => words
            .map(|word| (word != "-").then(|| word.to_owned()))
            .collect(),
        Some(other) => return Err(format!("unknown outcome: {other}")),
    };
    let failure = |part: &str| {
        let (index, reason) = part.split_once(' ').ok_or("a reason is missing")?;
        Ok::<_, String>(BundleFailure {
            index: number(Some(index))?,
            reason: reason.to_owned(),
        })
    };
    Ok(BundleOutcome {
        checksum: Some((CHECKSUM, hex)),
        failures: parts.map(failure).collect::<Result<_, _>>()?,
        sums,
    })
}

/// `KIND ERRNO TEXT`
fn file_error(text: &str) -> Result<FileError, String> {
    let mut words = text.splitn(3, ' ');
    let kind = match words.next().unwrap_or_default() {
        "NotFound" => FileErrorKind::NotFound,
        "Denied" => FileErrorKind::Denied,
        "Exists" => FileErrorKind::Exists,
        "NotADirectory" => FileErrorKind::NotADirectory,
        "IsADirectory" => FileErrorKind::IsADirectory,
        "NotEmpty" => FileErrorKind::NotEmpty,
        "NoSpace" => FileErrorKind::NoSpace,
        "NameTooLong" => FileErrorKind::NameTooLong,
        "Escapes" => FileErrorKind::OutsideRoot,
        "Busy" => FileErrorKind::Busy,
        "InUse" => FileErrorKind::InUse,
        "Aborted" => FileErrorKind::Aborted,
        "Other" => FileErrorKind::Other,
        other => return Err(format!("unknown kind of error: {other}")),
    };
    let errno: i32 = number(words.next())?;
    Ok(FileError {
        kind,
        errno: (errno != 0).then_some(errno),
        text: words.next().unwrap_or_default().to_owned(),
    })
}

fn number<T: std::str::FromStr>(word: Option<&str>) -> Result<T, String> {
    let word = word.ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("not a number: {word}"))
}

/// `NOW BYTES`
fn checksum_progress(text: &str) -> Result<DriverEvent, String> {
    let mut words = text.split(' ');
    Ok(DriverEvent::ChecksumProgress {
        now: number(words.next())?,
        bytes: number(words.next())?,
    })
}

/// `HOST:PORT` or `failed ERROR`.
fn listening(text: &str) -> Result<DriverEvent, String> {
    let result = match text.strip_prefix("failed ") {
        Some(error) => Err(file_error(error)?),
        None => {
            let address = text.parse().map_err(|_| format!("no address: {text}"))?;
            Ok(StripeAddresses::single(address))
        }
    };
    Ok(DriverEvent::Listening(result))
}

/// `|FAMILY|HOST|PORT|NONCE|` or `failed ERROR`.
fn drs_listening(text: &str) -> Result<DriverEvent, String> {
    let result = match text.strip_prefix("failed ") {
        Some(error) => Err(file_error(error)?),
        None => Ok(DrsAddress::parse(text).map_err(|_| format!("no DRS address: {text}"))?),
    };
    Ok(DriverEvent::DrsListening(result))
}

/// Empty, `reused` or `as PATH`.
fn opened(text: &str) -> Result<DriverEvent, String> {
    let unique_name = text.strip_prefix("as ").map(path).transpose()?;
    Ok(DriverEvent::Opened {
        reused: text == "reused",
        unique_name,
    })
}

/// `NOW BYTES [RANGES]`
fn progress(text: &str) -> Result<TransferProgress, String> {
    let mut words = text.split(' ');
    let (now, bytes) = (number(words.next())?, number(words.next())?);
    let stored = words.next().map(RangeSet::parse).transpose();
    Ok(TransferProgress {
        now,
        bytes,
        stripes: Vec::new(),
        stored: stored.map_err(|e| e.to_string())?.unwrap_or_default(),
    })
}

/// `LIMITER, STREAMS, CONGESTION`
fn limiter_report(text: &str) -> Result<LimiterReport, String> {
    let parts: Vec<&str> = text.split(", ").collect();
    let [limiter, streams, congestion] = parts[..] else {
        return Err(format!("not a limiter report: {text}"));
    };
    LimiterReport::new(limiter, number(Some(streams))?, congestion)
        .ok_or_else(|| format!("invalid limiter report: {text}"))
}

fn transferred(text: &str) -> Result<Result<CompletedTransfer, TransferError>, String> {
    let (result, rest) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match result {
        "ok" => {
            let (rest, remark) = match rest.split_once(" | ") {
                Some((rest, remark)) => (rest, Some(unescape(remark)?)),
                None => (rest, None),
            };
            let (moved, limiter_report) = match rest.split_once(" ~ ") {
                Some((moved, report_text)) => (moved, Some(limiter_report(report_text)?)),
                None => (rest, None),
            };
            Ok(CompletedTransfer {
                remarks: CompletionRemarks {
                    listing_bytes: None,
                    limiter: limiter_report,
                    remark: remark.map(|text| String::from_utf8_lossy(&text).into_owned()),
                },
                progress: progress(moved)?,
            })
        }
        "aborted" => Err(TransferError::Aborted),
        "taken-over" => Err(TransferError::Superseded),
        "broken" => Err(TransferError::Broken(rest.to_owned())),
        "no-connection" => Err(TransferError::NoConnection(rest.to_owned())),
        "failed" => Err(TransferError::File(file_error(rest)?)),
        "checksum" => {
            let (computed, expected) = rest.split_once(' ').ok_or("two checksums")?;
            Err(TransferError::Checksum {
                computed: computed.to_owned(),
                expected: expected.to_owned(),
            })
        }
        _ => return Err(format!("unknown result: {text}")),
    })
}
