//! Questions at a given rate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use enable::method::GET_ADVICE;
use enable::xmlrpc::{Call, write_call};
use serde_json::json;
use units::splitmix::SplitMix64;

use crate::AnyError;
use crate::database;
use crate::measured_service::{MeasuredService, host};

/// Connections; half of them speak XML-RPC, half JSON.
const CONNECTIONS: u32 = 64;
/// Name of the server in the database.
const SERVER: &str = "load";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who asks about how many hosts, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuestionLoad {
    pub(crate) hosts: u32,
    pub(crate) per_second: u32,
    pub(crate) seconds: u32,
}

/// Fills a database, starts the service on it, asks, and prints latencies and memory.
pub(crate) fn measure(program: &Path, load: QuestionLoad) -> Result<(), AnyError> {
    let directory = tempfile::tempdir()?;
    let filling = Instant::now();
    database::fill(&directory.path().join("paths.sqlite"), SERVER, load.hosts)?;
    println!(
        "database of {} hosts: filled in {:.0?}",
        load.hosts,
        filling.elapsed()
    );
    let settings = format!("server-name = \"{SERVER}\"\n");
    let service = MeasuredService::start(program, directory.path(), &settings)?;
    let read = service.wait_for("paths", f64::from(load.hosts))?;
    let (now, most) = service.memory()?;
    println!("read after {read:.1?}; memory {now:.0} MB, at most {most:.0} MB");
    let before = service.cpu()?;
    let started = Instant::now();
    let mut latencies = ask_all(service.address, load)?;
    let took = started.elapsed();
    let used = service.cpu()? - before;
    latencies.sort_unstable();
    let at = |in_thousand: usize| {
        let place = latencies.len() * in_thousand / 1000;
        let latency = latencies.get(place.min(latencies.len().saturating_sub(1)));
        latency.copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    println!(
        "{} answers in {took:.1?}, {:.0} a second; latency from due time, ms: p50 {:.2}, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, most {:.2}",
        latencies.len(),
        latencies.len() as f64 / took.as_secs_f64(),
        at(500),
        at(900),
        at(990),
        at(999),
        at(1000),
    );
    let (now, most) = service.memory()?;
    println!(
        "service: {:.0} % of one processor, {:.3} ms an answer; memory {now:.0} MB, at most {most:.0} MB",
        used.as_secs_f64() / took.as_secs_f64() * 100.0,
        used.as_secs_f64() * 1000.0 / latencies.len() as f64,
    );
    println!(
        "database: {} entries written, {} lost",
        service.metric("store_written_total")?,
        service.metric("store_dropped_total")?
    );
    Ok(())
}

/// Asks on all connections; returns all latencies.
fn ask_all(server: SocketAddr, load: QuestionLoad) -> Result<Vec<Duration>, AnyError> {
    let begin = Instant::now() + Duration::from_millis(500);
    let askers: Vec<_> = (0..CONNECTIONS)
        .map(|number| std::thread::spawn(move || Asker::connect(server, number)?.ask(begin, load)))
        .collect();
    let mut latencies = Vec::new();
    for asker in askers {
        let of_one = asker.join().map_err(|_| "an asker panicked")?;
        latencies.append(&mut of_one?);
    }
    Ok(latencies)
}

/// One connection. Each has a thread: the timers of a thread are finer than those of an event loop.
struct Asker {
    stream: BufReader<TcpStream>,
    random: SplitMix64,
    speaks_xml: bool,
}

impl Asker {
    fn connect(server: SocketAddr, number: u32) -> Result<Self, AnyError> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
            random: SplitMix64::new(u64::from(number)),
            speaks_xml: number.is_multiple_of(2),
        })
    }

    /// Asks at random times until the load's time is over.
    fn ask(mut self, begin: Instant, load: QuestionLoad) -> Result<Vec<Duration>, AnyError> {
        let pause = f64::from(CONNECTIONS) / f64::from(load.per_second);
        let mut due = begin;
        let mut latencies = Vec::new();
        loop {
            // Intervals of independent arrivals.
            due += Duration::from_secs_f64(-pause * (1.0 - self.part()).ln());
            if due.duration_since(begin) >= Duration::from_secs(load.seconds.into()) {
                return Ok(latencies);
            }
            let request = self.request(load.hosts)?;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.stream.get_mut().write_all(&request)?;
            let answer = self.answer()?;
            latencies.push(due.elapsed());
            if !answer.contains("bdp_bytes") {
                return Err(format!("not an answer: {answer}").into());
            }
        }
    }

    /// A random number, 0 to 1.
    fn part(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        let number = self.random.next_u64() % u64::from(end.max(1));
        u32::try_from(number).unwrap_or_default()
    }

    fn request(&mut self, hosts: u32) -> Result<Vec<u8>, AnyError> {
        let client = host(self.below(hosts)).to_string();
        if !self.speaks_xml {
            let text = format!("GET /api/v1/advice?client={client} HTTP/1.1\r\nHost: load\r\n\r\n");
            return Ok(text.into_bytes());
        }
        let question = json!({ "client": client });
        let body = write_call(&Call {
            method: GET_ADVICE.name.to_owned(),
            arguments: vec![json!("load"), question],
        })?;
        let head = format!(
            "POST /RPC2 HTTP/1.1\r\nHost: load\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Ok([head.into_bytes(), body.into()].concat())
    }

    /// The body of the next answer.
    fn answer(&mut self) -> Result<String, AnyError> {
        let mut length = 0;
        let mut line = String::new();
        while self.stream.read_line(&mut line)? > 2 {
            let lower = line.to_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?)
    }
}
