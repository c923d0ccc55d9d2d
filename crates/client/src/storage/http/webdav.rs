//! A WebDAV server for tests, which keeps its files in memory: what it does can be watched and
//! disturbed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data::checksum::ChecksumHasher;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use proto::checksum::ChecksumAlgorithm;

use super::scripted::{ReceivedRequest, ScriptedHttpServer, answer, head};

/// Listens as long as it lives.
pub(crate) struct WebDavServer {
    scripted: ScriptedHttpServer,
    state: Arc<Mutex<WebDavState>>,
}

#[derive(Default)]
struct WebDavState {
    /// By their paths, decoded and without a slash at the end.
    files: BTreeMap<Vec<u8>, WebDavFile>,
    /// The same; the root is none of them.
    directories: BTreeSet<Vec<u8>>,
    /// Files that were stored so far.
    versions: u32,
    /// The next answers with longer bodies are cut off after so many bytes of them.
    breaks: Vec<usize>,
    /// Each file becomes another one once so many bytes of it were sent.
    changes: Option<u64>,
    /// The whole file is sent whatever range is asked for.
    ignores_ranges: bool,
    /// Neither sums nor entity tags are told.
    is_plain: bool,
    /// The sums told are of other bytes.
    lies: bool,
    /// Bytes of files that were sent.
    sent: u64,
}

struct WebDavFile {
    bytes: Arc<Vec<u8>>,
    version: u32,
}

impl WebDavServer {
    /// An empty one.
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<WebDavState>>::default();
        let shared = Arc::clone(&state);
        let scripted = ScriptedHttpServer::start(move |asked| lock(&shared).reply(asked));
        Self { scripted, state }
    }

    /// The URL of a path, which needs no encoding.
    pub(crate) fn url(&self, path: &str) -> String {
        self.scripted.url(path)
    }

    /// Stores a file in a directory that exists.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        lock(&self.state).store(path.as_bytes(), bytes.to_vec());
    }

    /// The bytes of a file, if it is there.
    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        let state = lock(&self.state);
        let stored = state.files.get(path.as_bytes())?;
        Some(stored.bytes.to_vec())
    }

    /// Paths of all files, sorted.
    pub(crate) fn paths(&self) -> Vec<String> {
        let state = lock(&self.state);
        let paths = state.files.keys();
        paths
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// Bytes of files that were sent so far, headers not counted.
    pub(crate) fn sent(&self) -> u64 {
        lock(&self.state).sent
    }

    /// Connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        let asked = self.scripted.asked();
        let numbers: BTreeSet<_> = asked.iter().map(|asked| asked.connection).collect();
        numbers.len()
    }

    /// Cuts the next answers off, one for each length in bytes.
    pub(crate) fn break_after(&self, lengths: &[usize]) {
        lock(&self.state).breaks = lengths.to_vec();
    }

    /// Replaces what is read once so many bytes were sent.
    pub(crate) fn change_after(&self, sent: u64) {
        lock(&self.state).changes = Some(sent);
    }

    /// Sends whole files from now on.
    pub(crate) fn ignore_ranges(&self) {
        lock(&self.state).ignores_ranges = true;
    }

    /// Tells neither sums nor entity tags from now on.
    pub(crate) fn make_plain(&self) {
        lock(&self.state).is_plain = true;
    }

    /// Tells wrong sums from now on.
    pub(crate) fn lie(&self) {
        lock(&self.state).lies = true;
    }
}

fn lock(state: &Mutex<WebDavState>) -> MutexGuard<'_, WebDavState> {
    state.lock().unwrap()
}

/// The path of a URL or of a request's target, without the slash at its end.
fn decoded(uri: &str) -> Vec<u8> {
    let path = uri.split_once("://").map_or(uri, |(_, rest)| {
        rest.find('/').map_or("/", |slash| &rest[slash..])
    });
    let path: Vec<u8> = percent_decode_str(path).collect();
    path.strip_suffix(b"/").unwrap_or(&path).to_vec()
}

fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|b| *b == b'/');
    &path[..slash.unwrap_or(0)]
}

fn bare(status: &str) -> Vec<u8> {
    answer(status, &[], b"")
}

impl WebDavState {
    fn reply(&mut self, asked: &ReceivedRequest) -> Vec<u8> {
        let path = decoded(&asked.path);
        let is_directory = self.is_directory(&path);
        let is_there = is_directory || self.files.contains_key(&path);
        match asked.method.as_str() {
            "HEAD" | "GET" | "DELETE" | "PROPFIND" | "MOVE" if !is_there => bare("404 Not Found"),
            "HEAD" | "GET" if !is_directory => self.send(asked, &path),
            "HEAD" | "GET" if asked.path.ends_with('/') => head("403 Forbidden", &[], 0),
            "HEAD" | "GET" => {
                let location = format!("{}/", asked.path);
                head("301 Moved Permanently", &[("Location", &location)], 0)
            }
            "MKCOL" | "PUT" if is_directory => bare("405 Method Not Allowed"),
            "MKCOL" if is_there => bare("405 Method Not Allowed"),
            "MKCOL" | "PUT" if !self.is_directory(parent(&path)) => bare("409 Conflict"),
            "MKCOL" => {
                self.directories.insert(path);
                bare("201 Created")
            }
            "PUT" => {
                self.store(&path, asked.body.clone());
                bare(if is_there {
                    "204 No Content"
                } else {
                    "201 Created"
                })
            }
            "DELETE" => {
                let below = [&path[..], b"/"].concat();
                let stays = |other: &[u8]| other != path && !other.starts_with(&below);
                self.files.retain(|other, _| stays(other));
                self.directories.retain(|other| stays(other));
                bare("204 No Content")
            }
            "MOVE" => self.rename(asked, &path),
            "PROPFIND" => self.tell(asked, &path),
            _ => bare("501 Not Implemented"),
        }
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    fn store(&mut self, path: &[u8], bytes: Vec<u8>) {
        self.versions += 1;
        let stored = WebDavFile {
            bytes: Arc::new(bytes),
            version: self.versions,
        };
        self.files.insert(path.to_vec(), stored);
    }

    /// Only of files: nothing moves directories here.
    fn rename(&mut self, asked: &ReceivedRequest, from: &[u8]) -> Vec<u8> {
        let to = decoded(asked.field("destination").unwrap_or_default());
        if self.is_directory(&to) || !self.is_directory(parent(&to)) {
            return bare("409 Conflict");
        }
        if asked.field("overwrite") == Some("F") && self.files.contains_key(&to) {
            return bare("412 Precondition Failed");
        }
        let Some(stored) = self.files.remove(from) else {
            return bare("403 Forbidden");
        };
        match self.files.insert(to, stored) {
            Some(_) => bare("204 No Content"),
            None => bare("201 Created"),
        }
    }

    /// RFC 9110 §13, §14 and RFC 9530 of one file.
    fn send(&mut self, asked: &ReceivedRequest, path: &[u8]) -> Vec<u8> {
        let stored = &self.files[path];
        let (bytes, version) = (Arc::clone(&stored.bytes), stored.version);
        let size = bytes.len() as u64;
        let modified = format!(
            "Sun, 06 Nov 1994 08:{:02}:{:02} GMT",
            version / 60,
            version % 60
        );
        let etag = format!("\"{version}\"");
        let digest = digest(if self.lies { &b"else"[..] } else { &bytes });
        let told;
        let mut fields = vec![("Last-Modified", modified.as_str())];
        if !self.is_plain {
            fields.extend([("ETag", etag.as_str()), ("Repr-Digest", &digest)]);
        }
        let is = |told: &str| told == modified || (told == etag && !self.is_plain);
        let required = ["if-match", "if-unmodified-since"].map(|name| asked.field(name));
        if required.iter().flatten().any(|told| !is(told)) {
            return bare("412 Precondition Failed");
        }
        if !self.ignores_ranges {
            fields.push(("Accept-Ranges", "bytes"));
        }
        if asked.method == "HEAD" {
            let all = head("200 OK", &fields, bytes.len());
            // Apache tells no length of empty files.
            let told = String::from_utf8(all).unwrap();
            return told.replace("Content-Length: 0\r\n", "").into_bytes();
        }
        let same = asked.field("if-range").is_none_or(is);
        let (mut status, mut body) = ("200 OK", &bytes[..]);
        if asked.field("range").is_some() && same && !self.ignores_ranges {
            let Some(range) = asked.range(size).filter(|range| range.start < size) else {
                return bare("416 Range Not Satisfiable");
            };
            let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
            (status, body) = ("206 Partial Content", &bytes[start..end]);
            told = format!("bytes {start}-{}/{size}", end - 1);
            fields.push(("Content-Range", &told));
        }
        let cut = self.breaks.first().copied().filter(|cut| *cut < body.len());
        if let Some(cut) = cut {
            self.breaks.remove(0);
            fields.push(("Connection", "close"));
            self.sent += cut as u64;
            let all = answer(status, &fields, body);
            return all[..all.len() - body.len() + cut].to_vec();
        }
        self.sent += body.len() as u64;
        let reply = answer(status, &fields, body);
        if self.changes.is_some_and(|sent| self.sent >= sent) {
            self.changes = None;
            let other = bytes.iter().map(|byte| !byte).collect();
            self.store(path, other);
        }
        reply
    }

    /// RFC 4918 §9.1, as deep as one level.
    fn tell(&self, asked: &ReceivedRequest, path: &[u8]) -> Vec<u8> {
        let mut text = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">".to_owned();
        let deep = asked.field("depth") == Some("1");
        let told = |other: &[u8]| other == path || (deep && parent(other) == path);
        let root = [Vec::new()];
        for directory in root.iter().chain(&self.directories).filter(|d| told(d)) {
            let kind = "<D:resourcetype><D:collection/></D:resourcetype>";
            respond(&mut text, &[directory, &b"/"[..]].concat(), kind);
        }
        for (file, stored) in self.files.iter().filter(|(file, _)| told(file)) {
            let facts = format!(
                "<D:resourcetype/><D:getcontentlength>{}</D:getcontentlength><D:getetag>\"{}\"</D:getetag>",
                stored.bytes.len(),
                stored.version
            );
            respond(&mut text, file, &facts);
        }
        text.push_str("</D:multistatus>");
        answer("207 Multi-Status", &[], text.as_bytes())
    }
}

fn respond(text: &mut String, path: &[u8], facts: &str) {
    let parts = path.split(|b| *b == b'/');
    let parts: Vec<_> = parts
        .map(|part| percent_encode(part, NON_ALPHANUMERIC).to_string())
        .collect();
    let _ = write!(
        text,
        "<D:response><D:href>{}</D:href><D:propstat><D:prop>{facts}</D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
        parts.join("/")
    );
}

/// The value of Repr-Digest.
fn digest(bytes: &[u8]) -> String {
    let mut digest = ChecksumHasher::new(ChecksumAlgorithm::Sha256);
    digest.update(bytes);
    let hex = digest.finish();
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    });
    let bytes: Vec<u8> = pairs.collect();
    format!("sha-256=:{}:", BASE64_STANDARD.encode(bytes))
}
