//! A small plain FTP server with faults to order: what arrives is not what it says, or it breaks.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Faults and abilities.
#[derive(Clone, Default)]
pub(crate) struct FaultyServer {
    /// Bytes that every RETR sends, from the offset of REST.
    pub(crate) sent: Vec<u8>,
    /// Answer of SIZE about the file `/f`.
    pub(crate) size: usize,
    /// Answer of CKSM CRC32C; without it, there is no CKSM.
    pub(crate) sum: Option<&'static str>,
    /// CKSM is announced and refused.
    pub(crate) no_sum: bool,
    /// The first data transfer breaks off here, together with its control connection.
    pub(crate) cut_at: Option<usize>,
    /// Transfers to it that break off in the same way, one after the other, when so many bytes have come.
    pub(crate) cuts: Arc<Mutex<VecDeque<usize>>>,
    /// CKSM CRC32C tells the truth about stored files.
    pub(crate) sums: bool,
    /// Names that MLSD tells of the directory `/d`, all of them files of nine bytes; without them,
    /// there is no MLSD.
    pub(crate) names: Vec<&'static str>,
    /// RETR sends a quarter, another one once this is set, and then no more.
    pub(crate) stalls: Option<Arc<AtomicBool>>,
    /// STOR is refused with this, but only when all the bytes have come.
    pub(crate) no_store: Option<&'static str>,
    /// RETR is refused with this where REST came before it.
    pub(crate) no_more: Option<&'static str>,
    /// STOR ends with a refusal when so many bytes have come, however many are to come.
    pub(crate) full_at: Option<(usize, &'static str)>,
    /// Refusals that STOR gives first, the last one first.
    pub(crate) busy: Arc<Mutex<Vec<&'static str>>>,
    /// So many transfers are refused when all their bytes have been sent or stored.
    pub(crate) refusals: Arc<AtomicUsize>,
    /// RNFR is refused.
    pub(crate) no_rename: bool,
    /// RNTO to a name that is taken is refused with 553.
    pub(crate) no_replace: bool,
    /// RNTO of a partial file is refused with this.
    pub(crate) no_target: Option<&'static str>,
    /// Stored files, with their paths.
    pub(crate) files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    /// Whole command lines.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
}

/// One control connection.
struct FaultyServerSession {
    liar: FaultyServer,
    control: TcpStream,
    passive: Option<TcpListener>,
    active: Option<SocketAddr>,
    rest: usize,
    from: String,
}

impl FaultyServer {
    pub(crate) fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut liar = self.clone();
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                let talk = FaultyServerSession {
                    liar: liar.clone(),
                    control,
                    passive: None,
                    active: None,
                    rest: 0,
                    from: String::new(),
                };
                let cuts = liar.cut_at.is_some();
                let thread = std::thread::spawn(move || talk.run());
                // One connection at a time while a cut is to come, so that only one is cut.
                if cuts && thread.join().unwrap_or(true) {
                    liar.cut_at = None;
                }
            }
        });
        address
    }

    pub(crate) fn commands(&self, verb: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|l| l.starts_with(verb))
            .cloned()
            .collect()
    }
}

impl FaultyServerSession {
    /// Serves until the end; `true` when it was cut.
    fn run(mut self) -> bool {
        let lines = BufReader::new(self.control.try_clone().unwrap()).lines();
        self.say("220 here");
        for line in lines.map_while(Result::ok) {
            self.liar.seen.lock().unwrap().push(line.clone());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match self.answer(&verb.to_uppercase(), argument) {
                Some(reply) => self.say(&reply),
                None => return true,
            }
        }
        false
    }

    fn say(&mut self, reply: &str) {
        let _ = self.control.write_all(format!("{reply}\r\n").as_bytes());
    }

    fn answer(&mut self, verb: &str, argument: &str) -> Option<String> {
        let stored = |path: &str| self.liar.files.lock().unwrap().get(path).map(Vec::len);
        Some(match verb {
            "USER" => "331 word".to_owned(),
            "PASS" => "230 in".to_owned(),
            "FEAT" => {
                let summing = self.liar.no_sum || self.liar.sums || self.liar.sum.is_some();
                let sums = if summing { " CKSM CRC32C:1;\r\n" } else { "" };
                let mlst = if self.liar.names.is_empty() {
                    ""
                } else {
                    " MLST type*;size*;\r\n"
                };
                format!("211-have\r\n SIZE\r\n REST STREAM\r\n{sums}{mlst}211 end")
            }
            "TYPE" | "MODE" | "OPTS" | "ALLO" => "200 fine".to_owned(),
            "MLST" if argument == "/d" => "250-is\r\n type=dir; /d\r\n250 end".to_owned(),
            "MLSD" => self.list(),
            "SIZE" if argument == "/f" => format!("213 {}", self.liar.size),
            "SIZE" => {
                stored(argument).map_or("550 No such file".to_owned(), |n| format!("213 {n}"))
            }
            "CKSM" if self.liar.no_sum => "500 cannot sum".to_owned(),
            "CKSM" if self.liar.sums => self.sum(argument),
            "CKSM" => format!("213 {}", self.liar.sum.unwrap_or_default()),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                self.passive = Some(listener);
                format!("227 (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            "PORT" => {
                let n: Vec<u8> = argument.split(',').map(|n| n.parse().unwrap()).collect();
                let port = u16::from(n[4]) << 8 | u16::from(n[5]);
                self.active = Some(SocketAddr::from(([n[0], n[1], n[2], n[3]], port)));
                "200 there".to_owned()
            }
            "REST" => {
                self.rest = argument.parse().unwrap();
                "350 on".to_owned()
            }
            "RETR" if self.rest > 0 && self.liar.no_more.is_some() => {
                self.rest = 0;
                self.liar.no_more.unwrap_or_default().to_owned()
            }
            "RETR" => return self.send(),
            "STOR" => return self.take(argument),
            "RNFR" if self.liar.no_rename => "550 Permission denied".to_owned(),
            "RNFR" => {
                argument.clone_into(&mut self.from);
                "350 to".to_owned()
            }
            "RNTO" => {
                let mut files = self.liar.files.lock().unwrap();
                if self.liar.no_replace && files.contains_key(argument) {
                    return Some("553 File exists".to_owned());
                }
                if let Some(refusal) = self.liar.no_target
                    && self.from.ends_with("-partial")
                {
                    return Some(refusal.to_owned());
                }
                let bytes = files.remove(&self.from).unwrap();
                files.insert(argument.to_owned(), bytes);
                "250 renamed".to_owned()
            }
            "DELE" => match self.liar.files.lock().unwrap().remove(argument) {
                Some(_) => "250 gone".to_owned(),
                None => "550 No such file".to_owned(),
            },
            "CWD" => "550 No such directory".to_owned(),
            "QUIT" => "221 bye".to_owned(),
            _ => "502 no".to_owned(),
        })
    }

    /// The answer to CKSM: algorithm, offset, length (-1: the rest), path.
    fn sum(&self, argument: &str) -> String {
        let words: Vec<&str> = argument.splitn(4, ' ').collect();
        let files = self.liar.files.lock().unwrap();
        let Some(file) = files.get(words[3]) else {
            return "550 No such file".to_owned();
        };
        let start: usize = words[1].parse().unwrap();
        let end = words[2]
            .parse()
            .map_or(file.len(), |length: usize| start + length);
        let mut digest =
            data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
        digest.update(&file[start..end]);
        format!("213 {}", digest.finish())
    }

    fn list(&mut self) -> String {
        let mut data = self.data();
        for name in &self.liar.names {
            let _ = data.write_all(format!("type=file;size=9; {name}\r\n").as_bytes());
        }
        "226 done".to_owned()
    }

    fn data(&mut self) -> TcpStream {
        let data = match self.active.take() {
            Some(address) => TcpStream::connect(address).unwrap(),
            None => self.passive.take().unwrap().accept().unwrap().0,
        };
        self.say("150 comes");
        data
    }

    fn send(&mut self) -> Option<String> {
        let mut data = self.data();
        if let Some(go_on) = &self.liar.stalls {
            let (first, second) = self.liar.sent.split_at(self.liar.sent.len() / 4);
            let _ = data.write_all(first);
            while !go_on.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let _ = data.write_all(&second[..first.len()]);
            // Whoever receives has had enough.
            let _ = data.read_to_end(&mut Vec::new());
            return None;
        }
        let start = std::mem::take(&mut self.rest);
        let end = self.liar.cut_at.unwrap_or(self.liar.sent.len());
        let _ = data.write_all(&self.liar.sent[start..end]);
        if self.liar.cut_at.is_some() {
            // What was sent has arrived when the other end closes, too; then the control connection
            // breaks.
            let _ = data.shutdown(Shutdown::Write);
            let _ = data.read_to_end(&mut Vec::new());
            return None;
        }
        drop(data);
        Some(self.verdict())
    }

    /// The last word of a transfer.
    fn verdict(&self) -> String {
        let less = |n: usize| n.checked_sub(1);
        let refusals = &self.liar.refusals;
        match refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => "451 Local error in processing".to_owned(),
            Err(_) => "226 done".to_owned(),
        }
    }

    fn take(&mut self, path: &str) -> Option<String> {
        if let Some(refusal) = self.liar.busy.lock().unwrap().pop() {
            return Some(refusal.to_owned());
        }
        if let Some(refusal) = self.liar.no_store {
            let (mut data, _) = self.passive.take().unwrap().accept().unwrap();
            let _ = data.read_to_end(&mut Vec::new());
            return Some(refusal.to_owned());
        }
        let mut data = self.data();
        if let Some((most, refusal)) = self.liar.full_at {
            let _ = data.take(most as u64).read_to_end(&mut Vec::new());
            return Some(refusal.to_owned());
        }
        let start = std::mem::take(&mut self.rest);
        let mut bytes = Vec::new();
        let cut = self.liar.cut_at;
        let cut = cut.or_else(|| self.liar.cuts.lock().unwrap().pop_front());
        match cut {
            Some(end) => drop(data.take(end as u64).read_to_end(&mut bytes)),
            None => drop(data.read_to_end(&mut bytes)),
        }
        let mut files = self.liar.files.lock().unwrap();
        let file = files.entry(path.to_owned()).or_default();
        file.truncate(start);
        file.extend(bytes);
        drop(files);
        cut.is_none().then(|| self.verdict())
    }
}
