//! A small shell over one session, to try how a server reacts to the client's commands:
//!
//! ```text
//! cargo run -p ftp --example session -- HOST PORT USER PASSWORD COMMAND [ARGUMENT...]
//! ```
//!
//! Commands: `feat`, `ls PATH`, `stat PATH`, `cksum ALGORITHM PATH`, `mkdir PATH`, `rmdir PATH`,
//! `rm PATH`, `mv FROM TO`, `get PATH FILE [STREAMS [HAVE [OFFSET LENGTH]]]`, `reuse PATH STREAMS`
//! (several gets and listings in turn), `put FILE PATH [STREAMS [HAVE]]`, `copy PATH HOST PORT PATH
//! [STREAMS]`. STREAMS above 1 uses extended block mode; HAVE is a range list such as `0-100`, or
//! `-`.

#![allow(clippy::print_stdout, reason = "an example talks on standard output")]

use std::error::Error;
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use data::job::TransferControl;
use data::options::{IoMethod, TransferOptions};
use data::store::file::{FileSink, FileSource};
use data::store::memory::MemorySink;
use ftp::location::{Scheme, Server};
use ftp::session::ClientSession;
use ftp::transfer::{RestartProof, TransferAttempt, TransferSpec, get, put, third_party};
use ftp::{Credential, ModeChoice};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;

const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [host, port, user, password, command, rest @ ..] = words.as_slice() else {
        return Err("HOST PORT USER PASSWORD COMMAND [ARGUMENT...]".into());
    };
    let server = server(host, port, user, password)?;
    let mut session = ClientSession::open(&server, TIMEOUT).await?;
    run(&server, &mut session, command, rest).await?;
    session.close().await;
    Ok(())
}

fn server(host: &str, port: &str, user: &str, password: &str) -> Result<Server, Box<dyn Error>> {
    Ok(Server {
        scheme: Scheme::Ftp,
        host: host.to_owned(),
        port: port.parse()?,
        credential: Credential::password(user, password),
        query: None,
        security: Arc::default(),
    })
}

async fn run(
    server: &Server,
    session: &mut ClientSession,
    command: &str,
    arguments: &[&str],
) -> Result<(), Box<dyn Error>> {
    match (command, arguments) {
        ("feat", []) => println!("{:#?}\nrtt {:?}", session.features(), session.rtt()),
        ("ls", [path]) => {
            for entry in session.list(path.as_bytes()).await? {
                println!("{entry:?}");
            }
        }
        ("stat", [path]) => println!("{:?}", session.stat(path.as_bytes()).await?),
        ("cksum", [name, path]) => {
            let algorithm = ChecksumAlgorithm::parse(name).ok_or("no such algorithm")?;
            let checksum = session.checksum(algorithm, 0, None, path.as_bytes());
            println!("{}", checksum.await?);
        }
        ("mkdir", [path]) => println!("made: {}", session.make_dir(path.as_bytes()).await?),
        ("rmdir", [path]) => session.remove_dir(path.as_bytes()).await?,
        ("rm", [path]) => session.delete(path.as_bytes()).await?,
        ("mv", [from, to]) => session.rename(from.as_bytes(), to.as_bytes()).await?,
        ("get", [path, file, options @ ..]) => {
            let spec = spec(options)?;
            let file_ = OpenOptions::new()
                .create(true)
                .truncate(spec.completed_ranges.is_empty())
                .read(true)
                .write(true)
                .open(file)?;
            let sink = Arc::new(FileSink::new(file_, *file)?);
            let control = Arc::new(TransferControl::new());
            print_attempt(&get(session, path.as_bytes(), sink, &spec, &control).await?);
        }
        ("reuse", [path, streams]) => {
            let spec = spec(&[streams])?;
            for _ in 0..3 {
                let sink = Arc::new(MemorySink::new(1 << 30, "memory"));
                let control = Arc::new(TransferControl::new());
                print_attempt(&get(session, path.as_bytes(), sink, &spec, &control).await?);
                session.list(b"/").await?;
                for _ in 0..2 {
                    let sink = Arc::new(MemorySink::new(1 << 30, "memory"));
                    print_attempt(&get(session, path.as_bytes(), sink, &spec, &control).await?);
                }
            }
        }
        ("put", [file, path, options @ ..]) => {
            let source = Arc::new(FileSource::new(std::fs::File::open(file)?, *file)?);
            let control = Arc::new(TransferControl::new());
            let spec = spec(options)?;
            print_attempt(&put(session, source, path.as_bytes(), &spec, &control).await?);
        }
        ("copy", [path, host, port, to, options @ ..]) => {
            let other = Server {
                host: (*host).to_owned(),
                port: port.parse()?,
                ..server.clone()
            };
            let mut other = ClientSession::open(&other, TIMEOUT).await?;
            let mut spec = spec(options)?;
            spec.size = session.stat(path.as_bytes()).await?.size;
            let (from, to) = (path.as_bytes(), to.as_bytes());
            let progress = |bytes| println!("{bytes} bytes so far");
            let control = Arc::default();
            let copying = third_party(session, from, &mut other, to, &spec, &control, &progress);
            print_attempt(&copying.await?);
            other.close().await;
        }
        _ => return Err(format!("no command {command} with these arguments").into()),
    }
    Ok(())
}

fn print_attempt(attempt: &TransferAttempt) {
    println!(
        "{} bytes, {} streams, {}, {:?}; warnings: {:?}",
        attempt.report.evidence.bytes,
        attempt.streams,
        if attempt.extended_mode {
            "MODE E"
        } else {
            "MODE S"
        },
        attempt.report.evidence.elapsed,
        attempt.warnings
    );
}

fn spec(options: &[&str]) -> Result<TransferSpec, Box<dyn Error>> {
    let number = |at: usize| options.get(at).map(|word| word.parse::<u64>()).transpose();
    let have = match options.get(1) {
        None | Some(&"-") => RangeSet::new(),
        Some(ranges) => RangeSet::parse(ranges)?,
    };
    Ok(TransferSpec {
        size: number(3)?,
        part: number(2)?.zip(number(3)?),
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: None,
        completed_ranges: have,
        streams: number(0)?.unwrap_or(1).try_into()?,
        max_streams: 1,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ModeChoice::Auto,
        checksum: None,
        server_checksum: None,
        options: TransferOptions {
            buffers: SocketBuffers::default(),
            io: IoMethod::Auto,
            block: 256 << 10,
            stall: TIMEOUT,
            ..TransferOptions::default()
        },
        started: Arc::default(),
        stored_ranges: Arc::new(parking_lot::Mutex::new(RangeSet::new())),
        confirmation: Arc::default(),
        data_ports: None,
    })
}
