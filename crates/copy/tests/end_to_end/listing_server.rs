//! A small plain FTP server with files in memory, whose listings and times have selectable faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFile {
    pub(crate) bytes: Vec<u8>,
    /// As MDTM shows it.
    pub(crate) time: String,
}

/// The text of a listing and the final reply to its command.
pub(crate) type ListingTextAndReply = (Vec<u8>, String);

/// Changes what a command (`MLSD`, `LIST -a`, `LIST`, `NLST`) sends of a directory.
pub(crate) type ListingFault =
    dyn Fn(&str, &str, ListingTextAndReply) -> ListingTextAndReply + Send + Sync;

/// Files by path, shared by the test and all sessions. Directories are those that files are in.
pub(crate) type StoredFiles = Arc<Mutex<BTreeMap<String, StoredFile>>>;

/// Contents and habits of the server. By default it has SIZE, MDTM and MFMT, and no MLSD.
#[derive(Clone)]
pub(crate) struct ListingServer {
    pub(crate) files: StoredFiles,
    /// Received command lines.
    pub(crate) received: Arc<Mutex<Vec<String>>>,
    pub(crate) fault: Arc<ListingFault>,
    pub(crate) has_mlsd: bool,
    pub(crate) has_mdtm: bool,
    /// The time that MFMT stores; `None`: it says yes and stores nothing.
    pub(crate) keeps: fn(&str) -> Option<String>,
    /// Paths that only listings show: every question about them is answered with this.
    pub(crate) closed: Option<(&'static str, &'static str)>,
}

impl ListingServer {
    /// A server with files of one size and time.
    pub(crate) fn with(paths: &[&str]) -> Self {
        let server = Self {
            files: Arc::default(),
            received: Arc::default(),
            fault: Arc::new(|_, _, listing| listing),
            has_mlsd: false,
            has_mdtm: true,
            keeps: |time| Some(time.to_owned()),
            closed: None,
        };
        for path in paths {
            server.put(path, b"12345", "20240105101500");
        }
        server
    }

    /// With a fault of its listings.
    pub(crate) fn failing(
        mut self,
        fault: impl Fn(&str, &str, ListingTextAndReply) -> ListingTextAndReply + Send + Sync + 'static,
    ) -> Self {
        self.fault = Arc::new(fault);
        self
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8], time: &str) {
        let (bytes, time) = (bytes.to_vec(), time.to_owned());
        let stored = StoredFile { bytes, time };
        self.files.lock().unwrap().insert(path.to_owned(), stored);
    }

    /// Received commands of one verb.
    pub(crate) fn commands(&self, verb: &str) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let wanted = received.iter().filter(|line| line.starts_with(verb));
        wanted.cloned().collect()
    }

    /// Starts it; returns the URL of its root, without a slash at the end.
    pub(crate) fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let server = self.clone();
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                let session = ListingSession {
                    server: server.clone(),
                    control,
                    passive: None,
                    directory: "/".to_owned(),
                    from: String::new(),
                };
                std::thread::spawn(move || session.run());
            }
        });
        format!("ftp://{address}")
    }
}

struct ListingSession {
    server: ListingServer,
    control: TcpStream,
    passive: Option<TcpListener>,
    directory: String,
    from: String,
}

impl ListingSession {
    fn run(mut self) {
        let lines = BufReader::new(self.control.try_clone().unwrap()).lines();
        self.reply("220 here");
        for line in lines.map_while(Result::ok) {
            self.server.received.lock().unwrap().push(line.clone());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let reply = self.reply_to(verb, argument);
            self.reply(&reply);
        }
    }

    fn reply(&mut self, reply: &str) {
        let _ = self.control.write_all(format!("{reply}\r\n").as_bytes());
    }

    fn reply_to(&mut self, verb: &str, argument: &str) -> String {
        let path = self.absolute(argument);
        if let Some((closed, reply)) = self.server.closed
            && path == closed
            && matches!(verb, "CWD" | "SIZE" | "MDTM" | "RETR" | "MLST")
        {
            return reply.to_owned();
        }
        let stored = self.server.files.lock().unwrap().get(&path).cloned();
        match (verb, stored) {
            ("USER", _) => "331 word".to_owned(),
            ("PASS", _) => "230 in".to_owned(),
            ("FEAT", _) => {
                let mlst = if self.server.has_mlsd {
                    " MLST type*;size*;modify*;\r\n"
                } else {
                    ""
                };
                let mdtm = if self.server.has_mdtm {
                    " MDTM\r\n"
                } else {
                    ""
                };
                format!("211-have\r\n SIZE\r\n MFMT\r\n{mlst}{mdtm}211 end")
            }
            ("TYPE" | "MODE" | "OPTS", _) => "200 fine".to_owned(),
            ("CWD", _) if self.is_directory(&path) => {
                self.directory = path;
                "250 there".to_owned()
            }
            ("MKD", None) => {
                let marker = format!("{path}/.made");
                self.server.put(&marker, b"", "20240105101500");
                "257 made".to_owned()
            }
            ("SIZE", Some(stored)) => format!("213 {}", stored.bytes.len()),
            ("MDTM", Some(stored)) if self.server.has_mdtm => format!("213 {}", stored.time),
            ("MDTM", _) if !self.server.has_mdtm => "500 what?".to_owned(),
            ("MFMT", _) => self.set_time(argument),
            ("MLST", Some(_)) if self.server.has_mlsd => {
                format!("250-facts\r\n {}\r\n250 end", self.facts(&path, &path))
            }
            ("MLST", None) if self.server.has_mlsd && self.is_directory(&path) => {
                format!("250-facts\r\n type=dir; {path}\r\n250 end")
            }
            ("PASV", _) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                self.passive = Some(listener);
                format!("227 (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            ("MLSD" | "LIST" | "NLST", _) => self.list(verb, argument),
            ("RETR", Some(stored)) => {
                let _ = self.open_data().write_all(&stored.bytes);
                "226 done".to_owned()
            }
            ("STOR", _) => {
                let mut bytes = Vec::new();
                let _ = self.open_data().read_to_end(&mut bytes);
                // The time of a copy is later than that of its source.
                self.server.put(&path, &bytes, "20260101000000");
                "226 done".to_owned()
            }
            ("DELE", Some(_)) => {
                self.server.files.lock().unwrap().remove(&path);
                "250 gone".to_owned()
            }
            ("RMD", _) => "250 gone".to_owned(),
            ("RNFR", Some(_)) => {
                self.from = path;
                "350 to".to_owned()
            }
            ("RNTO", _) => {
                let mut files = self.server.files.lock().unwrap();
                let stored = files.remove(&self.from).unwrap();
                files.insert(path, stored);
                "250 renamed".to_owned()
            }
            ("CWD" | "SIZE" | "MDTM" | "MLST" | "RETR" | "DELE" | "RNFR", _) => {
                "550 No such file or directory".to_owned()
            }
            ("QUIT", _) => "221 bye".to_owned(),
            _ => "502 no".to_owned(),
        }
    }

    fn absolute(&self, argument: &str) -> String {
        let path = match (argument, argument.starts_with('/')) {
            ("" | "-a", _) => self.directory.clone(),
            (_, true) => argument.to_owned(),
            (_, false) => format!("{}/{argument}", self.directory.trim_end_matches('/')),
        };
        match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        }
    }

    fn is_directory(&self, path: &str) -> bool {
        let below = format!("{}/", path.trim_end_matches('/'));
        let files = self.server.files.lock().unwrap();
        files.keys().any(|path| path.starts_with(&below))
    }

    fn set_time(&self, argument: &str) -> String {
        let (time, path) = argument.split_once(' ').unwrap();
        let mut files = self.server.files.lock().unwrap();
        let Some(stored) = files.get_mut(path) else {
            return "550 No such file".to_owned();
        };
        if let Some(time) = (self.server.keeps)(time) {
            stored.time = time;
        }
        format!("213 Modify={time}; {path}")
    }

    fn facts(&self, path: &str, name: &str) -> String {
        let stored = self.server.files.lock().unwrap().get(path).cloned();
        match stored {
            Some(stored) => {
                let (size, time) = (stored.bytes.len(), stored.time);
                format!("type=file;size={size};modify={time}; {name}")
            }
            None => format!("type=dir; {name}"),
        }
    }

    /// The names in a directory, sorted; directories end in a slash. The mark of an empty directory is left out.
    fn names(&self, directory: &str) -> Vec<String> {
        let below = format!("{}/", directory.trim_end_matches('/'));
        let files = self.server.files.lock().unwrap();
        let inside = files.keys().filter_map(|path| path.strip_prefix(&below));
        let mut names: Vec<String> = inside
            .map(|rest| match rest.split_once('/') {
                Some((name, _)) => format!("{name}/"),
                None => rest.to_owned(),
            })
            .filter(|name| name != ".made")
            .collect();
        names.dedup();
        names
    }

    fn list(&mut self, verb: &str, argument: &str) -> String {
        if verb == "MLSD" && !self.server.has_mlsd {
            return "500 what?".to_owned();
        }
        let directory = self.absolute(argument);
        let line = |name: &String| {
            let (name, is_directory) = match name.strip_suffix('/') {
                Some(name) => (name, true),
                None => (name.as_str(), false),
            };
            let path = format!("{}/{name}", directory.trim_end_matches('/'));
            match (verb, is_directory) {
                ("MLSD", _) => self.facts(&path, name),
                ("NLST", _) => name.to_owned(),
                (_, true) => format!("drwxr-xr-x 2 u g 4096 Jan 05  2024 {name}"),
                (_, false) => {
                    let size = self.server.files.lock().unwrap()[&path].bytes.len();
                    format!("-rw-r--r-- 1 u g {size} Jan 05  2024 {name}")
                }
            }
        };
        // vsftpd and others hide names that begin with a dot.
        let is_shown =
            |name: &&String| argument == "-a" || verb == "MLSD" || !name.starts_with('.');
        let names = self.names(&directory);
        let lines = names.iter().filter(is_shown).map(line);
        let text: String = lines.map(|line| line + "\r\n").collect();
        let command = match argument {
            "-a" => format!("{verb} -a"),
            _ => verb.to_owned(),
        };
        let listing = (text.into_bytes(), "226 done".to_owned());
        let (text, reply) = (self.server.fault)(&command, &directory, listing);
        // Some fail in the middle.
        if !reply.starts_with('2') && text.is_empty() {
            return reply;
        }
        let _ = self.open_data().write_all(&text);
        reply
    }

    fn open_data(&mut self) -> TcpStream {
        let data = self.passive.take().unwrap().accept().unwrap().0;
        self.reply("150 comes");
        data
    }
}
