//! A small plain FTP server with selectable faults: wrong data, refusals, broken connections.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Faults and features of the server.
#[derive(Clone, Default)]
pub(crate) struct FaultyServer {
    /// Bytes that every RETR sends, from the offset of REST.
    pub(crate) sent: Vec<u8>,
    /// Reply to SIZE of the file `/f`.
    pub(crate) size: usize,
    /// Reply to CKSM CRC32C; without it, there is no CKSM.
    pub(crate) sum: Option<&'static str>,
    /// CKSM is announced and refused.
    pub(crate) refuse_checksum: bool,
    /// The first data transfer breaks off at this offset, together with its control connection.
    pub(crate) interrupt_at: Option<usize>,
    /// Transfers to the server that break off in the same way, one after the other, after this many
    /// bytes.
    pub(crate) interruptions: Arc<Mutex<VecDeque<usize>>>,
    /// CKSM CRC32C reports the true checksum of stored files.
    pub(crate) true_checksums: bool,
    /// Names that MLSD lists in the directory `/d`, all of them files of nine bytes; without them,
    /// there is no MLSD.
    pub(crate) listed_names: Vec<&'static str>,
    /// RETR sends a quarter, another quarter once this is set, and then nothing.
    pub(crate) stall_release: Option<Arc<AtomicBool>>,
    /// STOR is refused with this after all bytes have arrived.
    pub(crate) refuse_store_with: Option<&'static str>,
    /// RETR after REST is refused with this.
    pub(crate) refuse_restart_with: Option<&'static str>,
    /// STOR ends with a refusal after this many bytes.
    pub(crate) full_at: Option<(usize, &'static str)>,
    /// Refusals of the next STOR commands, the last one first.
    pub(crate) store_refusals: Arc<Mutex<Vec<&'static str>>>,
    /// Number of transfers that are refused after all their bytes were sent or stored.
    pub(crate) refusals: Arc<AtomicUsize>,
    /// RNFR is refused.
    pub(crate) refuse_rename: bool,
    /// RNFR, SIZE and DELE below this path are refused: files can be stored and nothing else.
    pub(crate) drop_box: Option<&'static str>,
    /// STOR of a partial file is refused with this.
    pub(crate) refuse_partial_names_with: Option<&'static str>,
    /// Paths of directories, over which no file is renamed.
    pub(crate) directories: Vec<&'static str>,
    /// RNTO to an existing name is refused with 553.
    pub(crate) refuse_replace: bool,
    /// RNTO of a partial file is refused with this.
    pub(crate) refuse_partial_rename_with: Option<&'static str>,
    /// Stored files by path.
    pub(crate) files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    /// Received command lines.
    pub(crate) received: Arc<Mutex<Vec<String>>>,
}

/// One control connection.
struct FaultyServerSession {
    faults: FaultyServer,
    control: TcpStream,
    passive: Option<TcpListener>,
    active: Option<SocketAddr>,
    restart_offset: usize,
    from: String,
    /// Argument of the last CWD.
    directory: String,
}

impl FaultyServer {
    pub(crate) fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut faults = self.clone();
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                let session = FaultyServerSession {
                    faults: faults.clone(),
                    control,
                    passive: None,
                    active: None,
                    restart_offset: 0,
                    from: String::new(),
                    directory: String::new(),
                };
                let interrupts = faults.interrupt_at.is_some();
                let handle = std::thread::spawn(move || session.run());
                // One connection at a time while an interruption is pending, so that only one is
                // interrupted.
                if interrupts && handle.join().unwrap_or(true) {
                    faults.interrupt_at = None;
                }
            }
        });
        address
    }

    pub(crate) fn commands(&self, verb: &str) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .filter(|l| l.starts_with(verb))
            .cloned()
            .collect()
    }
}

impl FaultyServerSession {
    /// Serves until the end; `true` when the transfer was interrupted.
    fn run(mut self) -> bool {
        let lines = BufReader::new(self.control.try_clone().unwrap()).lines();
        self.send_reply("220 here");
        for line in lines.map_while(Result::ok) {
            self.faults.received.lock().unwrap().push(line.clone());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match self.reply_to(&verb.to_uppercase(), argument) {
                Some(reply) => self.send_reply(&reply),
                None => return true,
            }
        }
        false
    }

    fn send_reply(&mut self, reply: &str) {
        let _ = self.control.write_all(format!("{reply}\r\n").as_bytes());
    }

    fn reply_to(&mut self, verb: &str, argument: &str) -> Option<String> {
        let stored = |path: &str| self.faults.files.lock().unwrap().get(path).map(Vec::len);
        let is_directory = self.faults.directories.contains(&argument);
        Some(match verb {
            "RNFR" | "SIZE" | "DELE" if self.is_in_drop_box(argument) => {
                "550 Permission denied".to_owned()
            }
            "STOR"
                if argument.ends_with("-partial")
                    && self.faults.refuse_partial_names_with.is_some() =>
            {
                self.faults
                    .refuse_partial_names_with
                    .unwrap_or_default()
                    .to_owned()
            }
            "RNTO" if is_directory => "550 Is a directory".to_owned(),
            "CWD" if is_directory => {
                argument.clone_into(&mut self.directory);
                "250 there".to_owned()
            }
            "USER" => "331 word".to_owned(),
            "PASS" => "230 in".to_owned(),
            "FEAT" => {
                let summing = self.faults.refuse_checksum
                    || self.faults.true_checksums
                    || self.faults.sum.is_some();
                let true_checksums = if summing { " CKSM CRC32C:1;\r\n" } else { "" };
                let mlst = if self.faults.listed_names.is_empty() {
                    ""
                } else {
                    " MLST type*;size*;\r\n"
                };
                format!("211-have\r\n SIZE\r\n REST STREAM\r\n{true_checksums}{mlst}211 end")
            }
            "TYPE" | "MODE" | "OPTS" | "ALLO" => "200 fine".to_owned(),
            "MLST" if argument == "/d" => "250-is\r\n type=dir; /d\r\n250 end".to_owned(),
            "MLSD" => self.send_listing(),
            "SIZE" if argument == "/f" => format!("213 {}", self.faults.size),
            "SIZE" => {
                stored(argument).map_or("550 No such file".to_owned(), |n| format!("213 {n}"))
            }
            "CKSM" if self.faults.refuse_checksum => "500 cannot sum".to_owned(),
            "CKSM" if self.faults.true_checksums => self.cksm_reply(argument),
            "CKSM" => format!("213 {}", self.faults.sum.unwrap_or_default()),
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
                self.restart_offset = argument.parse().unwrap();
                "350 on".to_owned()
            }
            "RETR" if self.restart_offset > 0 && self.faults.refuse_restart_with.is_some() => {
                self.restart_offset = 0;
                self.faults
                    .refuse_restart_with
                    .unwrap_or_default()
                    .to_owned()
            }
            "RETR" => return self.send_file(),
            "STOR" => return self.receive_file(argument),
            "RNFR" if self.faults.refuse_rename => "550 Permission denied".to_owned(),
            "RNFR" => {
                argument.clone_into(&mut self.from);
                "350 to".to_owned()
            }
            "RNTO" => {
                let mut files = self.faults.files.lock().unwrap();
                if self.faults.refuse_replace && files.contains_key(argument) {
                    return Some("553 File exists".to_owned());
                }
                if let Some(refusal) = self.faults.refuse_partial_rename_with
                    && self.from.ends_with("-partial")
                {
                    return Some(refusal.to_owned());
                }
                let bytes = files.remove(&self.from).unwrap();
                files.insert(argument.to_owned(), bytes);
                "250 renamed".to_owned()
            }
            "DELE" => match self.faults.files.lock().unwrap().remove(argument) {
                Some(_) => "250 gone".to_owned(),
                None => "550 No such file".to_owned(),
            },
            "CWD" => "550 No such directory".to_owned(),
            "QUIT" => "221 bye".to_owned(),
            _ => "502 no".to_owned(),
        })
    }

    fn is_in_drop_box(&self, path: &str) -> bool {
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", self.directory),
        };
        let drop_box = self.faults.drop_box;
        drop_box.is_some_and(|top| path.starts_with(top))
    }

    /// Replies to CKSM: algorithm, offset, length (-1: the rest), path.
    fn cksm_reply(&self, argument: &str) -> String {
        let arguments: Vec<&str> = argument.splitn(4, ' ').collect();
        let files = self.faults.files.lock().unwrap();
        let Some(file) = files.get(arguments[3]) else {
            return "550 No such file".to_owned();
        };
        let start: usize = arguments[1].parse().unwrap();
        let end = arguments[2]
            .parse()
            .map_or(file.len(), |length: usize| start + length);
        let mut digest =
            data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
        digest.update(&file[start..end]);
        format!("213 {}", digest.finish())
    }

    fn send_listing(&mut self) -> String {
        let mut data = self.open_data();
        for name in &self.faults.listed_names {
            let _ = data.write_all(format!("type=file;size=9; {name}\r\n").as_bytes());
        }
        "226 done".to_owned()
    }

    fn open_data(&mut self) -> TcpStream {
        let data = match self.active.take() {
            Some(address) => TcpStream::connect(address).unwrap(),
            None => self.passive.take().unwrap().accept().unwrap().0,
        };
        self.send_reply("150 comes");
        data
    }

    fn send_file(&mut self) -> Option<String> {
        let mut data = self.open_data();
        if let Some(go_on) = &self.faults.stall_release {
            let (first, second) = self.faults.sent.split_at(self.faults.sent.len() / 4);
            let _ = data.write_all(first);
            while !go_on.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let _ = data.write_all(&second[..first.len()]);
            // The receiver closes its side when it times out.
            let _ = data.read_to_end(&mut Vec::new());
            return None;
        }
        let start = std::mem::take(&mut self.restart_offset);
        let end = self.faults.interrupt_at.unwrap_or(self.faults.sent.len());
        let _ = data.write_all(&self.faults.sent[start..end]);
        if self.faults.interrupt_at.is_some() {
            // The other end closes after it has received everything; then the control connection
            // breaks.
            let _ = data.shutdown(Shutdown::Write);
            let _ = data.read_to_end(&mut Vec::new());
            return None;
        }
        drop(data);
        Some(self.final_reply())
    }

    /// The final reply of a transfer.
    fn final_reply(&self) -> String {
        let less = |n: usize| n.checked_sub(1);
        let refusals = &self.faults.refusals;
        match refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => "451 Local error in processing".to_owned(),
            Err(_) => "226 done".to_owned(),
        }
    }

    fn receive_file(&mut self, path: &str) -> Option<String> {
        if let Some(refusal) = self.faults.store_refusals.lock().unwrap().pop() {
            return Some(refusal.to_owned());
        }
        if let Some(refusal) = self.faults.refuse_store_with {
            let (mut data, _) = self.passive.take().unwrap().accept().unwrap();
            let _ = data.read_to_end(&mut Vec::new());
            return Some(refusal.to_owned());
        }
        let mut data = self.open_data();
        if let Some((most, refusal)) = self.faults.full_at {
            let _ = data.take(most as u64).read_to_end(&mut Vec::new());
            return Some(refusal.to_owned());
        }
        let start = std::mem::take(&mut self.restart_offset);
        let mut bytes = Vec::new();
        let interrupted_at = self.faults.interrupt_at;
        let interrupted_at =
            interrupted_at.or_else(|| self.faults.interruptions.lock().unwrap().pop_front());
        match interrupted_at {
            Some(end) => drop(data.take(end as u64).read_to_end(&mut bytes)),
            None => drop(data.read_to_end(&mut bytes)),
        }
        let mut files = self.faults.files.lock().unwrap();
        let file = files.entry(path.to_owned()).or_default();
        file.truncate(start);
        file.extend(bytes);
        drop(files);
        interrupted_at.is_none().then(|| self.final_reply())
    }
}
