//! Writes actions as lines of a transcript: `S:` for replies in wire form, `A:` for others.

use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::security::{DataChannelProtection, DataCredential};
use proto::server::{
    FileRequest, ListFormat, ListRequest, ListenRequest, SecurityRequest, SessionAction,
    StoreDisposition, TransferKind, TransferRequest,
};
use proto::sizing::{BufferSizing, SocketBuffers};
use proto::streams::ParallelismRange;

use super::script::escape;

/// The lines of one action.
pub(crate) fn describe(action: &SessionAction) -> Vec<String> {
    if let SessionAction::Reply(reply) = action {
        let mut wire = Vec::new();
        reply.encode(&mut wire);
        let text = wire.strip_suffix(b"\r\n").expect("a reply ends a line");
        return text
            .split(|b| *b == b'\n')
            .map(|line| format!("S: {}", escape(line.strip_suffix(b"\r").unwrap_or(line))))
            .collect();
    }
    vec![format!("A: {}", other(action))]
}

fn other(action: &SessionAction) -> String {
    match action {
        SessionAction::Authenticate { user, password } => {
            let password = password.as_ref();
            let shown = password.map(|password| format!("\"{}\"", escape(&password.0)));
            format!("Authenticate {user} {}", shown.unwrap_or("-".to_owned()))
        }
        SessionAction::File(request) => format!("File {}", file(request)),
        SessionAction::Listen(request) => format!("Listen {}", listen(request)),
        SessionAction::ReportForeignHost(host) => format!("NoteForeign {host}"),
        SessionAction::ConnectTo { to, striped } => {
            let to: Vec<String> = to.iter().map(|(_, at)| at.to_string()).collect();
            let form = if *striped { "striped " } else { "" };
            format!("ConnectTo {form}{}", to.join(" "))
        }
        SessionAction::ListenDrs(family) => format!("ListenDrs {family:?}"),
        SessionAction::ConnectDrs(to) => format!("ConnectDrs {}", to.format()),
        SessionAction::SetSendBuffer(bytes) => format!("FollowBuffer {bytes}"),
        SessionAction::Transfer(request) => format!("Transfer {}", transfer(request)),
        SessionAction::LogField(key, value) => format!("Note {key}: {value}"),
        SessionAction::IdleTimeout(seconds) => format!("IdleTimeout {seconds}"),
        SessionAction::Secure(request) => match request {
            SecurityRequest::Begin(mechanism) => format!("Secure begin {}", mechanism.name),
            SecurityRequest::Handshake => "Secure handshake".to_owned(),
            SecurityRequest::ProcessToken(token) => {
                format!("Secure token {}", escape(token.as_bytes()))
            }
        },
        SessionAction::SetDataCredential(DataCredential::Pem(pem)) => {
            format!("SetDataCredential {}", escape(&pem.0))
        }
        SessionAction::SetDataCredential(DataCredential::Default) => {
            "SetDataCredential default".to_owned()
        }
        SessionAction::ClearCommands
        | SessionAction::DropChannel
        | SessionAction::DropDrs
        | SessionAction::Abort
        | SessionAction::Close
        | SessionAction::Reply(_) => format!("{action:?}"),
    }
}

fn file(request: &FileRequest) -> String {
    match request {
        FileRequest::List(request) => format!("List {}", list(request)),
        FileRequest::Symlink { target, link } => {
            format!("Symlink {} -> {}", escape(link.as_bytes()), escape(target))
        }
        FileRequest::SymlinkAmong(pairs) => {
            let pair = |(target, link): &(Vec<u8>, proto::path::VPath)| {
                format!(" {} -> {}", escape(link.as_bytes()), escape(target))
            };
            format!("SymlinkAmong{}", pairs.iter().map(pair).collect::<String>())
        }
        other => format!("{other:?}"),
    }
}

fn listen(request: &ListenRequest) -> String {
    let mut text = format!("{:?}", request.family);
    if request.any_host {
        text.push_str(" any-host");
    }
    for host in &request.other_hosts {
        text.push_str(&format!(" other-host={host}"));
    }
    if request.striped.is_some() {
        text.push_str(" striped");
    }
    text + &buffers(request.buffers)
}

/// Buffers other than `auto` without pinned size.
fn buffers(buffers: SocketBuffers) -> String {
    let mut text = String::new();
    if let Some(bytes) = buffers.send {
        text.push_str(&format!(" send-buffer={bytes}"));
    }
    if let Some(bytes) = buffers.receive {
        text.push_str(&format!(" receive-buffer={bytes}"));
    }
    if buffers.sizing != BufferSizing::Auto {
        text.push_str(&format!(" sizing={}", buffers.sizing.name()));
    }
    text
}

fn transfer(request: &TransferRequest) -> String {
    let mode = match request.mode {
        TransferMode::Stream => "S",
        TransferMode::Extended => "E",
    };
    let type_ = match request.type_ {
        DataType::Ascii => "A",
        DataType::Image => "I",
    };
    let mut text = format!("{} mode={mode} type={type_}", kind(&request.kind));
    let ParallelismRange {
        start,
        min: least,
        max: most,
    } = request.streams;
    match request.streams {
        one if one == ParallelismRange::fixed(1) => {}
        fixed if fixed == ParallelismRange::fixed(start) => {
            text.push_str(&format!(" streams={start}"));
        }
        _ => text.push_str(&format!(" streams={start},{least},{most}")),
    }
    if !request.congestion_control.is_empty() {
        text.push_str(&format!(" congestion={}", request.congestion_control));
    }
    if let Some(request) = &request.delayed_passive {
        text.push_str(&format!(" delayed=({})", listen(request)));
    }
    for (name, seconds) in [
        ("112", request.perf_marker_seconds),
        ("111", request.range_marker_seconds),
    ] {
        if seconds > 0 {
            text.push_str(&format!(" {name}-every={seconds}"));
        }
    }
    if request.protection != DataChannelProtection::default() {
        let DataChannelProtection {
            authentication,
            level,
        } = &request.protection;
        text.push_str(&format!(" protection={authentication:?},{level:?}"));
    }
    text + &buffers(request.buffers)
}

fn kind(kind: &TransferKind) -> String {
    match kind {
        TransferKind::Retrieve {
            path,
            partial: part,
            already_received: have,
            checksum_algorithm: algorithm,
        } => {
            let mut text = format!("retrieve {}", escape(path.as_bytes()));
            if let Some((offset, length)) = part {
                text.push_str(&format!(" part={offset}+{length}"));
            }
            if !have.is_empty() {
                text.push_str(&format!(" have={have}"));
            }
            text + &sum(*algorithm)
        }
        TransferKind::Store {
            path,
            disposition,
            announced_size: allocate,
            checksum_algorithm: algorithm,
            expected_checksum: expect,
            modified: modify,
        } => {
            let mut text = format!("store {} ", escape(path.as_bytes()));
            text.push_str(&match disposition {
                StoreDisposition::Resume {
                    already_stored: have,
                } => format!("resume({have})"),
                StoreDisposition::AtOffset(offset) => format!("at({offset})"),
                other => format!("{other:?}").to_lowercase(),
            });
            if let Some(bytes) = allocate {
                text.push_str(&format!(" allocate={bytes}"));
            }
            text.push_str(&sum(*algorithm));
            if let Some((algorithm, hex)) = expect {
                text.push_str(&format!(" expect={}:{hex}", algorithm.name()));
            }
            if let Some(time) = modify {
                text.push_str(&format!(" modify={}", time.format()));
            }
            text
        }
        TransferKind::RetrieveBundle { directory, files } => {
            format!(
                "retrieve-bundle {}{}",
                escape(directory.as_bytes()),
                bundle(files)
            )
        }
        TransferKind::StoreBundle { directory, files } => {
            format!(
                "store-bundle {}{}",
                escape(directory.as_bytes()),
                bundle(files)
            )
        }
        TransferKind::List(request) => format!("list {}", list(request)),
    }
}

fn sum(algorithm: Option<ChecksumAlgorithm>) -> String {
    algorithm.map_or_else(String::new, |algorithm| {
        format!(" sum={}", algorithm.name())
    })
}

fn bundle(files: &[proto::bundle::BundleFile]) -> String {
    let file = |file: &proto::bundle::BundleFile| {
        let path = escape(file.path.as_bytes());
        format!(" {path}+{}", file.size)
    };
    files.iter().map(file).collect()
}

fn list(request: &ListRequest) -> String {
    let form = match request.format {
        ListFormat::Facts(facts) => format!("facts({})", facts.selected()),
        ListFormat::LsLong => "long".to_owned(),
        ListFormat::Names => "names".to_owned(),
    };
    let mut text = format!("{} {form}", escape(request.path.as_bytes()));
    if let Some(pattern) = &request.pattern {
        text.push_str(&format!(" pattern={}", escape(pattern)));
    }
    if !request.prefix.is_empty() {
        text.push_str(&format!(" prefix={}", escape(&request.prefix)));
    }
    if request.recursive {
        text.push_str(" recursive");
    }
    text
}
