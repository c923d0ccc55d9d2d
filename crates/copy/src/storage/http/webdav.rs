//! A test WebDAV server with files in memory and injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data::checksum::ChecksumHasher;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use proto::checksum::ChecksumAlgorithm;

use super::scripted::{ReceivedRequest, ScriptedHttpServer, head_response, response};

/// Listens until dropped.
pub(crate) struct WebDavServer {
    scripted: ScriptedHttpServer,
    state: Arc<Mutex<WebDavState>>,
}

#[derive(Default)]
struct WebDavState {
    /// By decoded path without a trailing slash.
    files: BTreeMap<Vec<u8>, WebDavFile>,
    /// Likewise. The root is not included.
    directories: BTreeSet<Vec<u8>>,
    /// Number of files stored so far, used as version.
    versions: u32,
    /// The next responses are cut off after so many bytes, if their bodies are longer.
    cut_after: Vec<usize>,
    /// Each file is replaced once so many bytes were sent.
    change_after: Option<u64>,
    /// The whole file is sent for any range.
    ignores_ranges: bool,
    /// Neither digests nor entity tags are sent.
    omits_digests: bool,
    /// The digests sent are of other bytes.
    wrong_digests: bool,
    /// The next request with each of these methods is refused, with this Retry-After.
    busy_for: Vec<(&'static str, u64)>,
    /// Only GET, HEAD and PUT are supported.
    is_plain: bool,
    /// PUT under a partial name is refused.
    refuses_partial_names: bool,
    /// HEAD and GET of collections are answered as those of files are.
    heads_collections: bool,
    /// Conditions are refused whatever they are, as by servers that take each for a lock.
    refuses_conditions: bool,
    /// MOVE to this path is refused.
    refused_name: Option<Vec<u8>>,
    /// MOVE replaces what is there also with `Overwrite: F`.
    ignores_overwrite: bool,
    /// A collection takes the place of this file after it was described.
    swapped: Option<Vec<u8>>,
    /// COPY fetches files of other servers.
    fetches: bool,
    /// The next reports of COPY, in place of what was done.
    reports: Vec<&'static str>,
    /// Bytes of files that were sent.
    sent: u64,
}

struct WebDavFile {
    bytes: Arc<Vec<u8>>,
    version: u32,
}

impl WebDavServer {
    /// An empty server.
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<WebDavState>>::default();
        let shared = Arc::clone(&state);
        let scripted = ScriptedHttpServer::start(move |request| shared.lock().reply(request));
        Self { scripted, state }
    }

    /// The URL of a path that needs no encoding.
    pub(crate) fn url(&self, path: &str) -> String {
        self.scripted.url(path)
    }

    /// Stores a file in an existing directory.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        self.state.lock().store(path.as_bytes(), bytes.to_vec());
    }

    /// The bytes of a file, if it exists.
    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let stored = state.files.get(path.as_bytes())?;
        Some(stored.bytes.to_vec())
    }

    /// Paths of all files, sorted.
    pub(crate) fn paths(&self) -> Vec<String> {
        let state = self.state.lock();
        let paths = state.files.keys();
        paths
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// Bytes of files sent so far, without headers.
    pub(crate) fn sent(&self) -> u64 {
        self.state.lock().sent
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        let request = self.scripted.requests();
        let numbers: BTreeSet<_> = request.iter().map(|request| request.connection).collect();
        numbers.len()
    }

    /// Cuts off the next responses, one for each length in bytes.
    pub(crate) fn break_after(&self, lengths: &[usize]) {
        self.state.lock().cut_after = lengths.to_vec();
    }

    /// Replaces the file that is being read once so many bytes were sent.
    pub(crate) fn change_after(&self, sent: u64) {
        self.state.lock().change_after = Some(sent);
    }

    /// Sends whole files from now on.
    pub(crate) fn ignore_ranges(&self) {
        self.state.lock().ignores_ranges = true;
    }

    /// Sends neither digests nor entity tags from now on.
    pub(crate) fn omit_digests_and_etags(&self) {
        self.state.lock().omits_digests = true;
    }

    /// Refuses the next request with this method, and asks to wait for so many seconds.
    pub(crate) fn refuse_once(&self, method: &'static str, seconds: u64) {
        self.state.lock().busy_for.push((method, seconds));
    }

    /// From now on supports nothing of WebDAV.
    pub(crate) fn refuse_webdav(&self) {
        self.state.lock().is_plain = true;
    }

    /// From now on refuses PUT under a partial name.
    pub(crate) fn refuse_partial_names(&self) {
        self.state.lock().refuses_partial_names = true;
    }

    /// From now on fetches files of other servers (COPY). The next reports on that are these; an empty one has no end.
    pub(crate) fn fetch_from_others(&self, reports: &[&'static str]) {
        let mut state = self.state.lock();
        state.fetches = true;
        state.reports = reports.to_vec();
    }

    /// Makes a collection.
    pub(crate) fn make_collection(&self, path: &str) {
        self.state
            .lock()
            .directories
            .insert(path.as_bytes().to_vec());
    }

    /// From now on answers HEAD and GET of collections as wsgidav and sabre/dav do.
    pub(crate) fn answer_head_of_collections(&self) {
        self.state.lock().heads_collections = true;
    }

    /// From now on refuses requests with If or If-Match.
    pub(crate) fn refuse_conditions(&self) {
        self.state.lock().refuses_conditions = true;
    }

    /// From now on refuses MOVE to a path.
    pub(crate) fn refuse_moves_to(&self, path: &str) {
        self.state.lock().refused_name = Some(path.as_bytes().to_vec());
    }

    /// From now on replaces what is there by any MOVE.
    pub(crate) fn ignore_overwrite(&self) {
        self.state.lock().ignores_overwrite = true;
    }

    /// Puts a collection with a file in the place of a file as soon as a client has asked what is there.
    pub(crate) fn swap_after_question(&self, path: &str) {
        self.state.lock().swapped = Some(path.as_bytes().to_vec());
    }

    /// Methods of the requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        let requests = self.scripted.requests().into_iter();
        requests.map(|request| request.method).collect()
    }

    /// The paths of all requests of a method.
    pub(crate) fn paths_of(&self, method: &str) -> Vec<String> {
        let requests = self.scripted.requests().into_iter();
        let of_method = requests.filter(|request| request.method == method);
        of_method.map(|request| request.path).collect()
    }

    /// How often a client has asked what is at a path.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let requests = self.scripted.requests().into_iter();
        let asked = requests.filter(|r| matches!(r.method.as_str(), "PROPFIND" | "HEAD"));
        asked
            .filter(|r| decoded_path(&r.path) == path.as_bytes())
            .count()
    }

    /// Sends wrong digests from now on.
    pub(crate) fn send_wrong_digests(&self) {
        self.state.lock().wrong_digests = true;
    }
}

/// The bytes of a file of another server.
fn fetch(url: &str) -> Option<Vec<u8>> {
    use std::io::{Read as _, Write as _};

    let (server, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = std::net::TcpStream::connect(server).ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    stream.shutdown(std::net::Shutdown::Write).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let is_found = answer.starts_with(b"HTTP/1.1 200");
    is_found.then(|| answer.split_off(end + 4))
}

/// The path of a URL or of a request target, without a trailing slash.
fn decoded_path(uri: &str) -> Vec<u8> {
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

fn empty_response(status: &str) -> Vec<u8> {
    response(status, &[], b"")
}

impl WebDavState {
    fn reply(&mut self, request: &ReceivedRequest) -> Vec<u8> {
        let busy = self.busy_for.iter().position(|(m, _)| *m == request.method);
        if let Some(at) = busy {
            let wait = self.busy_for.remove(at).1.to_string();
            return head_response("503 Service Unavailable", &[("Retry-After", &wait)], 0);
        }
        let path = decoded_path(&request.path);
        let is_directory = self.is_directory(&path);
        let is_there = is_directory || self.files.contains_key(&path);
        match request.method.as_str() {
            "MKCOL" | "DELETE" | "PROPFIND" | "MOVE" if self.is_plain => {
                empty_response("405 Method Not Allowed")
            }
            "HEAD" | "GET" | "DELETE" | "PROPFIND" | "MOVE" if !is_there => {
                empty_response("404 Not Found")
            }
            "HEAD" | "GET" if !is_directory => self.send(request, &path),
            "HEAD" | "GET" if self.heads_collections => {
                let page = b"<html>a page</html>";
                match request.method.as_str() {
                    "HEAD" => head_response("200 OK", &[], page.len()),
                    _ => response("200 OK", &[], page),
                }
            }
            "HEAD" | "GET" if request.path.ends_with('/') => head_response("403 Forbidden", &[], 0),
            "HEAD" | "GET" => {
                let location = format!("{}/", request.path);
                head_response("301 Moved Permanently", &[("Location", &location)], 0)
            }
            "MKCOL" | "PUT" if is_directory => empty_response("405 Method Not Allowed"),
            "MKCOL" if is_there => empty_response("405 Method Not Allowed"),
            "MKCOL" | "PUT" if !self.is_directory(parent(&path)) => empty_response("409 Conflict"),
            "PUT" if self.refuses_partial_names && path.ends_with(b"-partial") => {
                empty_response("403 Forbidden")
            }
            "MKCOL" => {
                self.directories.insert(path);
                empty_response("201 Created")
            }
            "PUT" => {
                self.store(&path, request.body.clone());
                empty_response(if is_there {
                    "204 No Content"
                } else {
                    "201 Created"
                })
            }
            "DELETE" | "MOVE" if self.is_refused(request, &path) => {
                empty_response("412 Precondition Failed")
            }
            // RFC 4918 section 9.6.1.
            "DELETE" if is_directory && request.header("depth") == Some("0") => {
                empty_response("400 Bad Request")
            }
            "DELETE" => {
                self.remove(&path);
                empty_response("204 No Content")
            }
            "MOVE" => self.rename(request, &path),
            "COPY" if self.fetches && request.header("source").is_some() => {
                let fetched = fetch(request.header("source").unwrap_or_default());
                let done = match &fetched {
                    Some(_) => "success: Created\n",
                    None => "failure: not found\n",
                };
                self.store(&path, fetched.unwrap_or_default());
                let report = (!self.reports.is_empty()).then(|| self.reports.remove(0));
                if report == Some("") {
                    return b"HTTP/1.1 202 Accepted\r\nContent-Length: 5000\r\n\r\n".to_vec();
                }
                response("202 Accepted", &[], report.unwrap_or(done).as_bytes())
            }
            "PROPFIND" => {
                let described = self.propfind(request, &path);
                if self.swapped.take_if(|swapped| *swapped == path).is_some() {
                    self.files.remove(&path);
                    self.directories.insert(path.clone());
                    self.store(&[&path[..], b"/precious"].concat(), b"precious".to_vec());
                }
                described
            }
            _ => empty_response("501 Not Implemented"),
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

    /// Whether If-Match, or the tags of If for the destination (RFC 4918 section 10.4), name another version.
    fn is_refused(&self, request: &ReceivedRequest, path: &[u8]) -> bool {
        let conditions = ["if-match", "if"].map(|name| request.header(name));
        let destination = request.header("destination").map(decoded_path);
        let target = destination.as_deref().unwrap_or(path);
        let stored = self.files.get(target);
        let tag = stored.map(|stored| format!("\"{}\"", stored.version));
        let is_met = |condition: &str| tag.as_ref().is_some_and(|tag| condition.contains(tag));
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| self.refuses_conditions || !is_met(condition))
    }

    fn remove(&mut self, path: &[u8]) {
        let below = [path, b"/"].concat();
        let stays = |other: &[u8]| other != path && !other.starts_with(&below);
        self.files.retain(|other, _| stays(other));
        self.directories.retain(|other| stays(other));
    }

    /// Renames a file or a collection. What is at the destination is deleted with everything in it (RFC 4918 section 9.9.3).
    fn rename(&mut self, request: &ReceivedRequest, from: &[u8]) -> Vec<u8> {
        let to = decoded_path(request.header("destination").unwrap_or_default());
        if !self.is_directory(parent(&to)) {
            return empty_response("409 Conflict");
        }
        if self.refused_name.as_ref() == Some(&to) {
            return empty_response("403 Forbidden");
        }
        let is_there = self.is_directory(&to) || self.files.contains_key(&to);
        if request.header("overwrite") == Some("F") && is_there && !self.ignores_overwrite {
            return empty_response("412 Precondition Failed");
        }
        self.remove(&to);
        let moved = |path: &[u8]| {
            let rest = path.strip_prefix(from)?;
            let is_below = rest.is_empty() || rest.starts_with(b"/");
            is_below.then(|| [&to, rest].concat())
        };
        let files = std::mem::take(&mut self.files).into_iter();
        let files = files.map(|(path, file)| (moved(&path).unwrap_or(path), file));
        self.files = files.collect();
        let directories = std::mem::take(&mut self.directories).into_iter();
        let directories = directories.map(|path| moved(&path).unwrap_or(path));
        self.directories = directories.collect();
        match is_there {
            true => empty_response("204 No Content"),
            false => empty_response("201 Created"),
        }
    }

    /// GET and HEAD of one file with conditions and ranges (RFC 9110 sections 13 and 14) and
    /// digests (RFC 9530).
    fn send(&mut self, request: &ReceivedRequest, path: &[u8]) -> Vec<u8> {
        let stored = &self.files[path];
        let (bytes, version) = (Arc::clone(&stored.bytes), stored.version);
        let size = bytes.len() as u64;
        let modified = format!(
            "Sun, 06 Nov 1994 08:{:02}:{:02} GMT",
            version / 60,
            version % 60
        );
        let etag = format!("\"{version}\"");
        let digest = digest(if self.wrong_digests {
            &b"else"[..]
        } else {
            &bytes
        });
        let content_range;
        let mut fields = vec![("Last-Modified", modified.as_str())];
        if !self.omits_digests {
            fields.extend([("ETag", etag.as_str()), ("Repr-Digest", &digest)]);
        }
        let is_current = |value: &str| value == modified || (value == etag && !self.omits_digests);
        let required = ["if-match", "if-unmodified-since"].map(|name| request.header(name));
        if required.iter().flatten().any(|value| !is_current(value)) {
            return empty_response("412 Precondition Failed");
        }
        if !self.ignores_ranges {
            fields.push(("Accept-Ranges", "bytes"));
        }
        if request.method == "HEAD" {
            let response = head_response("200 OK", &fields, bytes.len());
            // Apache sends no length for empty files.
            let text = String::from_utf8(response).unwrap();
            return text.replace("Content-Length: 0\r\n", "").into_bytes();
        }
        let same = request.header("if-range").is_none_or(is_current);
        let (mut status, mut body) = ("200 OK", &bytes[..]);
        if request.header("range").is_some() && same && !self.ignores_ranges {
            let Some(range) = request.range(size).filter(|range| range.start < size) else {
                return empty_response("416 Range Not Satisfiable");
            };
            let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
            (status, body) = ("206 Partial Content", &bytes[start..end]);
            content_range = format!("bytes {start}-{}/{size}", end - 1);
            fields.push(("Content-Range", &content_range));
        }
        let cut = self
            .cut_after
            .first()
            .copied()
            .filter(|cut| *cut < body.len());
        if let Some(cut) = cut {
            self.cut_after.remove(0);
            fields.push(("Connection", "close"));
            self.sent += cut as u64;
            let response = response(status, &fields, body);
            return response[..response.len() - body.len() + cut].to_vec();
        }
        self.sent += body.len() as u64;
        let reply = response(status, &fields, body);
        if self.change_after.is_some_and(|sent| self.sent >= sent) {
            self.change_after = None;
            let other = bytes.iter().map(|byte| !byte).collect();
            self.store(path, other);
        }
        reply
    }

    /// PROPFIND (RFC 4918 section 9.1) with depth 0 or 1.
    fn propfind(&self, request: &ReceivedRequest, path: &[u8]) -> Vec<u8> {
        let mut text = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">".to_owned();
        let deep = request.header("depth") == Some("1");
        let is_listed = |other: &[u8]| other == path || (deep && parent(other) == path);
        let root = [Vec::new()];
        for directory in root
            .iter()
            .chain(&self.directories)
            .filter(|d| is_listed(d))
        {
            let kind = "<D:resourcetype><D:collection/></D:resourcetype>";
            push_resource(&mut text, &[directory, &b"/"[..]].concat(), kind);
        }
        for (file, stored) in self.files.iter().filter(|(file, _)| is_listed(file)) {
            let facts = format!(
                "<D:resourcetype/><D:getcontentlength>{}</D:getcontentlength><D:getetag>\"{}\"</D:getetag>",
                stored.bytes.len(),
                stored.version
            );
            push_resource(&mut text, file, &facts);
        }
        text.push_str("</D:multistatus>");
        response("207 Multi-Status", &[], text.as_bytes())
    }
}

fn push_resource(text: &mut String, path: &[u8], facts: &str) {
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

/// The value of the Repr-Digest header.
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
