//! Sends a file over loopback with each method to `/dev/null` and to files, and prints what moved
//! per second and what it cost in processor time.
//!
//! `cargo run --release -p data --example pump -- SOURCE [TARGET...]`; SOURCE should be hot in the
//! page cache, TARGET files are created and removed. `PUMP_ROUNDS` (3) rounds, medians printed;
//! `PUMP_CONGESTION` names a congestion control;
//! `PUMP_ONLY` picks the lines that contain it, such as `Extended x4`.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::channel::{Accept, Channel, ListenOptions};
use data::job::{Control, Settings};
use data::options::{Congestion, IoMethod, TransferOptions};
use data::recv::RecvPlan;
use data::send::SendPlan;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::Algorithm;
use proto::command::Mode;
use proto::ranges::RangeSet;
use proto::sizing::Buffers;

/// One line of the table.
#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    streams: usize,
    block: usize,
    send: IoMethod,
    receive: IoMethod,
    sum: Option<Algorithm>,
}

impl Case {
    fn name(self, target: &str) -> String {
        let Self {
            mode,
            streams,
            block,
            send,
            receive,
            sum,
        } = self;
        let block = block >> 10;
        let sum = sum.map_or("-", Algorithm::name);
        format!("{target:24} {mode:?} x{streams} {block:4}K {send:?}/{receive:?} {sum}")
    }
}

const CASES: [Case; 16] = {
    use IoMethod::{Copy, Sendfile, Splice, Zerocopy};
    const fn case(mode: Mode, streams: usize, send: IoMethod, receive: IoMethod) -> Case {
        Case {
            mode,
            streams,
            block: 1 << 20,
            send,
            receive,
            sum: None,
        }
    }
    const fn summed(streams: usize, receive: IoMethod, sum: Algorithm) -> Case {
        Case {
            sum: Some(sum),
            ..case(Mode::Extended, streams, Copy, receive)
        }
    }
    [
        case(Mode::Stream, 1, Copy, Copy),
        case(Mode::Stream, 1, Copy, Splice),
        case(Mode::Stream, 1, Sendfile, Copy),
        case(Mode::Stream, 1, Sendfile, Splice),
        case(Mode::Stream, 1, Splice, Copy),
        case(Mode::Stream, 1, Zerocopy, Copy),
        case(Mode::Extended, 1, Sendfile, Copy),
        case(Mode::Extended, 1, Sendfile, Splice),
        case(Mode::Extended, 4, Copy, Copy),
        case(Mode::Extended, 4, Copy, Splice),
        case(Mode::Extended, 4, Sendfile, Copy),
        case(Mode::Extended, 4, Sendfile, Splice),
        Case {
            block: 256 << 10,
            ..case(Mode::Extended, 4, Sendfile, Copy)
        },
        summed(1, Copy, Algorithm::Crc32c),
        summed(4, Copy, Algorithm::Crc32c),
        summed(4, Splice, Algorithm::Sha256),
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
    for target in &targets {
        let mut lines: Vec<_> = CASES
            .into_iter()
            .map(|case| (case, case.name(target), Vec::new()))
            .filter(|(_, name, _)| name.contains(&only))
            .collect();
        // Round by round, so that a busy moment of the machine hits all cases alike.
        for _ in 0..rounds.max(1) {
            for (case, _, runs) in &mut lines {
                runs.push(measure(Path::new(&source), Path::new(target), *case)?);
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

/// GB per second, and CPU seconds of both ends per GB.
fn measure(source: &Path, target: &Path, case: Case) -> Result<(f64, f64), Box<dyn Error>> {
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
    let mut receiver = Channel::listen(&ListenOptions {
        ip: [127, 0, 0, 1].into(),
        ports: None,
        accept: Accept::Any,
        buffers: Buffers::sized(proto::sizing::Sizing::Kernel),
    })?;
    let to = receiver.local_addr().ok_or("no listener")?;
    let mut sender = Channel::connect_to(vec![to], None);
    let settings = |io| Settings {
        options: TransferOptions {
            block: case.block,
            io,
            congestion: std::env::var("PUMP_CONGESTION")
                .map_or(Congestion::System, |name| Congestion::parse(&name)),
            ..TransferOptions::default()
        },
        mode: case.mode,
        streams: case.streams,
        sum: case.sum,
        ..Settings::default()
    };
    let mut ranges = RangeSet::new();
    ranges.insert(0, len);
    let plan = SendPlan { ranges, origin: 0 };
    let before = cpu_time();
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let control = Arc::new(Control::new());
            data::send::run(&mut sender, &source, &plan, &settings(case.send), &control)
        });
        let plan = RecvPlan {
            origin: 0,
            stream_start: 0,
            limit: Some(len),
        };
        let control = Arc::new(Control::new());
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
    // What cannot be read back, like /dev/null, has no ordered sum over several streams.
    let summed = sent.digest.is_some() && received.digest.is_some();
    if received.evidence.bytes != len || summed && sent.digest != received.digest {
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
