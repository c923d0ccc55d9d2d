//! Sends a file over loopback with each method to `/dev/null` and to files, and prints the
//! throughput and the processor time per GB.
//!
//! `cargo run --release -p data --example pump -- SOURCE [TARGET...]`. SOURCE should be in the page
//! cache; TARGET files are created and removed. `PUMP_ROUNDS` (default 3) is the number of rounds,
//! of which the medians are printed; `PUMP_CONGESTION` names a congestion control; `PUMP_ONLY`
//! selects the lines that contain it, such as `Extended x4`. `PUMP_PROTECTION=private` sends through
//! TLS, `authenticated` after a GSI handshake.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::job::{TransferControl, TransferSettings};
use data::options::{CongestionChoice, IoMethod, TransferOptions};
use data::recv::ReceivePlan;
use data::security::DataSecurity;
use data::send::SendPlan;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;
use security::gsi::DataHandshakeMode;
use security::test_pki::TestAuthority;
use security::tls::TlsOptions;

/// One line of the table.
#[derive(Clone, Copy)]
struct PumpCase {
    mode: TransferMode,
    streams: usize,
    block: usize,
    send: IoMethod,
    receive: IoMethod,
    checksum: Option<ChecksumAlgorithm>,
}

impl PumpCase {
    fn name(self, target: &str) -> String {
        let Self {
            mode,
            streams,
            block,
            send,
            receive,
            checksum,
        } = self;
        let block = block >> 10;
        let checksum = checksum.map_or("-", ChecksumAlgorithm::name);
        format!("{target:24} {mode:?} x{streams} {block:4}K {send:?}/{receive:?} {checksum}")
    }
}

const CASES: [PumpCase; 16] = {
    use IoMethod::{Copy, Sendfile, Splice, Zerocopy};
    const fn case(
        mode: TransferMode,
        streams: usize,
        send: IoMethod,
        receive: IoMethod,
    ) -> PumpCase {
        PumpCase {
            mode,
            streams,
            block: 1 << 20,
            send,
            receive,
            checksum: None,
        }
    }
    const fn with_checksum(
        streams: usize,
        receive: IoMethod,
        checksum: ChecksumAlgorithm,
    ) -> PumpCase {
        PumpCase {
            checksum: Some(checksum),
            ..case(TransferMode::Extended, streams, Copy, receive)
        }
    }
    [
        case(TransferMode::Stream, 1, Copy, Copy),
        case(TransferMode::Stream, 1, Copy, Splice),
        case(TransferMode::Stream, 1, Sendfile, Copy),
        case(TransferMode::Stream, 1, Sendfile, Splice),
        case(TransferMode::Stream, 1, Splice, Copy),
        case(TransferMode::Stream, 1, Zerocopy, Copy),
        case(TransferMode::Extended, 1, Sendfile, Copy),
        case(TransferMode::Extended, 1, Sendfile, Splice),
        case(TransferMode::Extended, 4, Copy, Copy),
        case(TransferMode::Extended, 4, Copy, Splice),
        case(TransferMode::Extended, 4, Sendfile, Copy),
        case(TransferMode::Extended, 4, Sendfile, Splice),
        PumpCase {
            block: 256 << 10,
            ..case(TransferMode::Extended, 4, Sendfile, Copy)
        },
        with_checksum(1, Copy, ChecksumAlgorithm::Crc32c),
        with_checksum(4, Copy, ChecksumAlgorithm::Crc32c),
        with_checksum(4, Splice, ChecksumAlgorithm::Sha256),
    ]
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().ok_or("usage: pump SOURCE [TARGET...]")?;
    let targets: Vec<String> = std::iter::once("/dev/null".to_owned())
        .chain(args)
        .collect();
    let rounds = std::env::var("PUMP_ROUNDS").map_or(Ok(3), |n| n.parse::<usize>())?;
    let mut out = std::io::stdout();
    let only = std::env::var("PUMP_ONLY").unwrap_or_default();
    let security = protection()?;
    for target in &targets {
        let mut lines: Vec<_> = CASES
            .into_iter()
            .map(|case| (case, case.name(target), Vec::new()))
            .filter(|(_, name, _)| name.contains(&only))
            .collect();
        // Round by round, so that load from other programs affects all cases alike.
        for _ in 0..rounds.max(1) {
            for (case, _, runs) in &mut lines {
                runs.push(measure(
                    Path::new(&source),
                    Path::new(target),
                    *case,
                    security.as_ref(),
                )?);
            }
        }
        for (_, name, mut runs) in lines {
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (rate, cpu) = runs[runs.len() / 2];
            writeln!(out, "{name}: {rate:.2} GB/s {cpu:.2} CPU s/GB")?;
        }
    }
    Ok(())
}

/// Returns GB per second, and processor seconds of both ends per GB.
fn measure(
    source: &Path,
    target: &Path,
    case: PumpCase,
    security: Option<&Arc<DataSecurity>>,
) -> Result<(f64, f64), Box<dyn Error>> {
    let file = File::open(source)?;
    let len = file.metadata()?.len();
    let source: Arc<dyn Source> = Arc::new(FileSource::new(file, "source")?);
    let to_file = !target.starts_with("/dev/null");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(to_file)
        .truncate(to_file)
        .open(target)?;
    let sink: Arc<dyn Sink> = Arc::new(FileSink::new(file, "target")?);
    let mut receiver = SessionDataChannel::listen(&ListenOptions {
        ip: [127, 0, 0, 1].into(),
        ports: None,
        accept: AllowedPeers::Any,
        buffers: SocketBuffers::sized_by(proto::sizing::BufferSizing::Kernel),
    })?;
    let to = receiver.local_addr().ok_or("no listener")?;
    let mut sender = SessionDataChannel::connect_to(vec![to], None);
    let settings = |io| TransferSettings {
        options: TransferOptions {
            block: case.block,
            io,
            congestion: std::env::var("PUMP_CONGESTION").map_or(CongestionChoice::System, |name| {
                CongestionChoice::parse(&name)
            }),
            ..TransferOptions::default()
        },
        mode: case.mode,
        streams: case.streams,
        checksum: case.checksum,
        security: security.map(Arc::clone),
        ..TransferSettings::default()
    };
    let mut ranges = RangeSet::new();
    ranges.insert(0, len);
    let plan = SendPlan::new(ranges, 0);
    let before = cpu_time();
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let control = Arc::new(TransferControl::new());
            data::send::run(&mut sender, &source, &plan, &settings(case.send), &control)
        });
        let plan = ReceivePlan {
            origin: 0,
            stream_start: 0,
            limit: Some(len),
        };
        let control = Arc::new(TransferControl::new());
        let received = data::recv::run(
            &mut receiver,
            &sink,
            &plan,
            &settings(case.receive),
            &control,
        );
        (sending.join(), received)
    });
    let cpu = cpu_time().saturating_sub(before);
    let sent = sent.map_err(|_| "the sender panicked")??;
    let received = received?;
    // A target that cannot be read back, like /dev/null, has no ordered checksum over several
    // streams.
    let both_have_checksum = sent.checksum.is_some() && received.checksum.is_some();
    if received.evidence.bytes != len || both_have_checksum && sent.checksum != received.checksum {
        return Err("what arrived is not what was sent".into());
    }
    if to_file {
        std::fs::remove_file(target)?;
    }
    let gigabytes = len as f64 / 1e9;
    Ok((
        gigabytes / received.evidence.elapsed.as_secs_f64(),
        cpu.as_secs_f64() / gigabytes,
    ))
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The protection of both ends; `None`: clear.
fn protection() -> Result<Option<Arc<DataSecurity>>, Box<dyn Error>> {
    let mode = match std::env::var("PUMP_PROTECTION").as_deref() {
        Ok("private") => DataHandshakeMode::Protected,
        Ok("authenticated") => DataHandshakeMode::AuthenticateOnly,
        _ => return Ok(None),
    };
    let credential = TestAuthority::new("/O=Grid/CN=Authority").user("User");
    let options = |role| {
        TlsOptions::grid(role)
            .with_credential(credential.clone())
            .unverified()
    };
    Ok(Some(Arc::new(DataSecurity::grid(mode, options)?)))
}
