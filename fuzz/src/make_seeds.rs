//! Writes seeds, from real exchanges where there are any: `make_seeds DIR` makes `DIR/TARGET/NAME`.
//!
//! It has the form of a fuzz target, because instrumented code links only with the fuzzer. It ends before
//! the first input.

#![no_main]
#![allow(
    unreachable_code,
    reason = "the fuzzer's code behind `init` is never reached"
)]

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use enable::xmlrpc::{Call, write_answer, write_call, write_fault};
use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::pki::{PKI, config};
use proto::security::{SecurityToken, TokenError};
use security::gsi::{Delegation, GsiInitiator, GsiStep};
use security::tls::{TlsProfile, TlsRole};
use security::x509::{ProxyKind, ProxyOptions, ProxyRequest};
use serde_json::json;

type AnyError = Box<dyn std::error::Error>;

fuzz_target!(
    init: {
        let code = match write_seeds() {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("make_seeds: {error}");
                1
            }
        };
        std::process::exit(code)
    },
    |_input: &[u8]| {}
);

fn write_seeds() -> Result<(), AnyError> {
    let folder = std::env::args().nth(1).ok_or("usage: make_seeds DIR")?;
    let folder = Path::new(&folder);
    write_dialogues(folder)?;
    write_exchanges(folder)?;
    write_certificates(folder)?;
    write_texts(folder)?;
    write_bundles(folder)?;
    write_advice(folder)
}

fn write(folder: &Path, target: &str, name: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let folder = folder.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

/// The dialogues that the protocol crate is tested with, each as what the client and the server send.
fn write_dialogues(folder: &Path) -> Result<(), AnyError> {
    let transcripts = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/proto/tests/transcripts"
    );
    for entry in fs::read_dir(transcripts)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        let sent = |marks: &[&str]| -> Vec<String> {
            let lines = text.lines();
            let line = |line: &str| {
                let rest = marks.iter().find_map(|mark| line.strip_prefix(mark))?;
                Some(format!("{rest}\r\n"))
            };
            lines.filter_map(line).collect()
        };
        // Commands inside ENC are lines, too (`P:`).
        let commands = sent(&["C: ", "P: "]).concat();
        let replies = sent(&["S: "]);
        // The first bytes are a place to split, or the policy and the choices of `session`.
        write(folder, "line", &name, format!("\0{commands}"))?;
        write(
            folder,
            "session",
            &name,
            format!("{}{commands}", "\x08".repeat(9)),
        )?;
        write(folder, "reply", &name, format!("\0{}", replies.concat()))?;
        let protected = |line: &String| {
            let token = SecurityToken::new(line.clone().into_bytes())?;
            Ok::<_, TokenError>(format!("632 {}\r\n", token.encode()))
        };
        let replies: Vec<String> = replies.iter().map(protected).collect::<Result<_, _>>()?;
        write(
            folder,
            "protected_reply",
            &name,
            format!("\0{}", replies.concat()),
        )?;
        for (number, command) in commands.lines().enumerate() {
            write(folder, "command", &format!("{name}_{number}"), command)?;
        }
    }
    Ok(())
}

/// Changes as `Tampering` reads them: none, one at each of some places, a recorded ClientHello.
fn write_exchanges(folder: &Path) -> Result<(), AnyError> {
    let config = config(TlsRole::Client, TlsProfile::Grid);
    let mut initiator = GsiInitiator::new(&config, Delegation::None)?;
    let GsiStep::Continue(hello) = initiator.step(None)? else {
        return Err("no first token".into());
    };
    let length = u16::try_from(hello.len())?.to_be_bytes();
    let recorded = [&[0, 1][..], &length, &hello].concat();
    let seeds = [
        ("genuine", vec![0]),
        ("genuine_client", vec![1]),
        ("delegated", vec![255]),
        ("recorded", recorded),
        ("first_changed", vec![0, 2, 1, 0, 9, 1]),
        ("second_changed", vec![0, 0, 2, 1, 0, 40, 1]),
        ("second_changed_client", vec![1, 0, 2, 1, 0, 40, 1]),
        ("second_cut", vec![0, 0, 3, 0, 20]),
        ("third_longer", vec![0, 0, 0, 4, 0, 4, 23, 3, 3, 0]),
    ];
    for target in ["gsi_acceptor", "gsi_initiator", "tls_records"] {
        for (name, bytes) in &seeds {
            write(folder, target, name, bytes)?;
        }
    }
    Ok(())
}

fn write_certificates(folder: &Path) -> Result<(), AnyError> {
    let target = "certificate";
    let options = ProxyOptions {
        kind: ProxyKind::Limited,
        valid: Duration::from_secs(12 * 3600),
        path_length: Some(1),
        key_bits: 2048,
    };
    let root = PKI.authority.certificate().to_pem()?;
    write(folder, target, "root.pem", &root)?;
    let chain = [PKI.host.leaf().to_pem()?, root.clone()].concat();
    write(folder, target, "host_chain.pem", chain)?;
    let proxy = PKI.user.new_proxy(&options)?;
    write(folder, target, "proxy.pem", &*proxy.to_pem()?)?;
    let chain = [proxy.leaf().to_pem()?, PKI.user.leaf().to_pem()?, root].concat();
    write(folder, target, "proxy_chain.pem", chain)?;
    write(folder, target, "host.der", PKI.host.leaf().to_der()?)?;
    write(
        folder,
        target,
        "request.der",
        ProxyRequest::new(2048)?.to_der()?,
    )?;
    Ok(())
}

/// The lines of a bundle of three files. The first byte is the number of files of a reply.
fn write_bundles(folder: &Path) -> io::Result<()> {
    let seeds = [
        (
            "announcement",
            "1024,20260102030405,/data/a 7,,/data/b%20c 0,,/data/d",
        ),
        ("add", "ADD 1024,20260102030405,/data/a 7,,/data/b%20c"),
        ("end", "END CRC32C 1a2b3c4d 0,2"),
        (
            "outcome",
            "\x03250-Bundle CRC32C 1a2b3c4d\r\n FAILED 1 Permission denied\r\n250 End.\r\n",
        ),
        (
            "sums",
            "\x03450-Bundle CRC32C 1a2b3c4d\r\n SUMS 0a1b2c3d - 00000000\r\n450 The checksum differs.\r\n",
        ),
    ];
    for (name, text) in seeds {
        write(folder, "bundle", name, text)?;
    }
    Ok(())
}

fn write_texts(folder: &Path) -> Result<(), AnyError> {
    write(
        folder,
        "gridmap",
        "gridmap",
        "# comment\n\"/O=Grid/CN=Ada Lovelace\" ada,lovelace\n/O=Grid/CN=host\\\\/h x\n",
    )?;
    write(
        folder,
        "gridmap",
        "policy",
        "access_id_CA X509 '/C=CH/O=Grid/CN=Test CA'\npos_rights globus CA:sign\n\
         cond_subjects globus '\"/O=Grid/*\"'\n",
    )?;
    for (name, text) in [
        (
            "page",
            "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>d/a+b%2B</Key><Size>1</Size>\
             <ETag>&quot;e&quot;</ETag></Contents><CommonPrefixes><Prefix>d/e/</Prefix></CommonPrefixes>\
             <IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
        ),
        (
            "parts",
            "<ListPartsResult><Part><PartNumber>1</PartNumber><ETag>e</ETag><Size>5</Size></Part>\
             <IsTruncated>false</IsTruncated></ListPartsResult>",
        ),
        (
            "error",
            "<Error><Code>AccessDenied</Code><Message>no</Message></Error>",
        ),
        (
            "profiles",
            "[profile a]\nregion = r\ns3 =\n  addressing_style = path\n",
        ),
    ] {
        write(folder, "s3", name, text)?;
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs();
    for (name, more) in [
        (
            "scitoken",
            r#""ver":"scitokens:2.0","scope":"read:/a write:/a/b""#,
        ),
        (
            "wlcg",
            r#""wlcg.ver":"1.0","scope":"storage.read:/ storage.create:/x""#,
        ),
    ] {
        let claims = format!(
            r#"{{"iss":"https://issuer.example","aud":"here","sub":"ada","jti":"1","iat":{now},"nbf":{now},"exp":{},{more}}}"#,
            now + 3600
        );
        write(folder, "jwt", name, claims)?;
    }
    write(
        folder,
        "jwt",
        "scope",
        "storage.read:/a%20b storage.modify:/ read:/../x",
    )?;
    write(
        folder,
        "jwt",
        "keys",
        r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"1"}]}"#,
    )?;
    write(
        folder,
        "proxy_header",
        "v1",
        "PROXY TCP4 192.0.2.1 198.51.100.1 4000 2811\r\nAUTH TLS\r\n",
    )?;
    write(folder, "proxy_header", "v1_unknown", "PROXY UNKNOWN\r\n")?;
    let mut second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    second.extend([192, 0, 2, 1, 198, 51, 100, 1, 0x0f, 0xa0, 0x0a, 0xfb]);
    write(folder, "proxy_header", "v2", second)?;
    // The first byte chooses protocol and login, the second one the split.
    for (name, seed) in [
        (
            "connect",
            &b"\0\x05HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\n220 ready\r\n"[..],
        ),
        (
            "connect_login",
            b"\x02\x01HTTP/1.0 407 Proxy Authentication Required\n\n",
        ),
        (
            "connect_hints",
            b"\0\x02HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 Down\r\n\r\n",
        ),
        (
            "socks",
            b"\x01\x03\x05\0\x05\0\0\x01\x7f\0\0\x01\x0a\xfb220 ready\r\n",
        ),
        (
            "socks_login",
            b"\x03\x01\x05\x02\x01\0\x05\0\0\x03\x01h\x0a\xfb",
        ),
        ("socks_refusal", b"\x01\x04\x05\0\x05\x02\0\x01"),
    ] {
        write(folder, "proxy_reply", name, seed)?;
    }
    write(folder, "holder_message", "load", [0])?;
    write(folder, "holder_message", "framed_load", [0, 0, 0, 1, 0])?;
    write(
        folder,
        "holder_message",
        "sign",
        [&[3, 0, 0, 0, 0][..], &[5; 32]].concat(),
    )?;
    write(
        folder,
        "holder_message",
        "rsa",
        [&[2, 0, 0, 0, 0][..], &[5; 51]].concat(),
    )?;
    Ok(())
}

/// What the advice service reads: logs and results of real servers, one line a seed, calls and answers.
fn write_advice(folder: &Path) -> Result<(), AnyError> {
    let data = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/advisor/tests/data"
    ));
    for entry in fs::read_dir(data.join("logs"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        for (number, line) in fs::read(entry.path())?
            .split(|byte| *byte == b'\n')
            .enumerate()
        {
            write(folder, "transfer_log", &format!("{name}_{number}"), line)?;
        }
    }
    write(folder, "transfer_log", "longhaul", TRANSFER)?;
    for entry in fs::read_dir(data.join("import"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = fs::read(entry.path())?;
        if name.ends_with("jsonl") {
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                write(folder, "imported_result", &format!("{name}_{number}"), line)?;
            }
        } else {
            write(folder, "imported_result", &name, bytes)?;
        }
    }
    let advice = json!({
        "client": "192.0.2.1", "set_buffer_bytes": 4_194_304, "bdp_bytes": 4_194_304, "streams": 8,
        "congestion_control": "bbr", "pace_bps": 80_000_000, "expected_bps": 9e9, "loss": 0.001,
        "asymmetric": false, "why": "a < b & c",
    });
    write(folder, "xml_rpc", "advice", write_answer(&advice)?)?;
    write(
        folder,
        "xml_rpc",
        "fault",
        write_fault(404, "unknown path")?,
    )?;
    for method in enable::method::ALL {
        let question = json!({"client": "192.0.2.1", "bytes": 1, "must_set_buffer": true});
        let call = Call {
            method: method.name.to_owned(),
            arguments: vec!["data.example".into(), question, json!([1, -2.5, "", true])],
        };
        write(folder, "xml_rpc", method.name, write_call(&call)?)?;
    }
    for (name, body) in [
        (
            "question",
            r#"{"client":"192.0.2.1","bytes":1,"must_set_buffer":true}"#,
        ),
        (
            "choice",
            r#"{"ping":"10min","route":true,"pchar":0,"a":"1500ms"}"#,
        ),
    ] {
        write(folder, "advisor_request", name, body)?;
    }
    // Type, code, checksum, identifier, sequence number and token; with an IPv4 header before it.
    let tail = [0, 0, 0, 7, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    for kind in [0, 8, 128, 129] {
        let message = [&[kind, 0][..], &tail].concat();
        write(folder, "icmp_message", &kind.to_string(), &message)?;
        let packet = [&[0x45][..], &[0; 19], &message].concat();
        write(folder, "icmp_message", &format!("packet_{kind}"), packet)?;
    }
    Ok(())
}

/// A line of the transfer log of `longhaul serve`.
const TRANSFER: &str = r#"{"start":"2026-11-20T11:03:45.195241Z","end":"2026-11-20T11:03:55.195241Z","seconds":10.0,"bytes":1000000,"direction":"retrieve","user":"ann","client":"[::ffff:192.0.2.9]:4711","data_peers":["192.0.2.7"],"family":"ipv4","root":"/srv","path":"/f","path_hex":null,"stored_as":null,"mode":"E","streams":4,"block":262144,"buffer":131072,"sizing":"auto","memory_bytes":65536,"min_rtt_us":31000,"retransmits":2,"decision":null,"limiter":"receive window","congestion":"bbr","checksum":null,"protection":"private","identity":null,"code":226,"result":"ok","error":null,"task":null,"application":null}"#;
