//! An HTTP server for tests, which answers as a function says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use proto::ranges::ByteRange;

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    /// Path and query.
    pub(super) path: String,
    /// Lower-case names.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Number of the connection, from 0.
    pub(super) connection: usize,
}

impl ReceivedRequest {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let named = self.fields.iter().find(|(field, _)| field == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Of how many bytes the Range field asks which.
    pub(super) fn range(&self, size: u64) -> Option<ByteRange> {
        let (first, last) = self
            .field("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let end = last.parse().map_or(size, |last: u64| (last + 1).min(size));
        ByteRange::new(first.parse().ok()?, end)
    }
}

type ResponseScript = dyn Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync;

/// Listens as long as it lives.
pub(super) struct ScriptedHttpServer {
    pub(super) at: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ScriptedHttpServer {
    /// Answers each request with what `script` gives: the bytes of the answer as they are to be sent.
    /// After an empty one the connection is closed.
    pub(super) fn start(
        script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (seen, script): (_, Arc<ResponseScript>) = (Arc::clone(&asked), Arc::new(script));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                std::thread::spawn(move || {
                    // A client that has enough may close at any time.
                    let _ = stream.and_then(|stream| serve(stream, number, &seen, &*script));
                });
            }
        });
        Self { at, asked }
    }

    /// All requests so far.
    pub(super) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    seen: &Mutex<Vec<ReceivedRequest>>,
    script: &ResponseScript,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let mut asked = ReceivedRequest {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            connection,
            ..ReceivedRequest::default()
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            let name = name.to_ascii_lowercase();
            asked.fields.push((name, value.trim().to_owned()));
        }
        if asked.field("expect").is_some() {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if let Some(length) = asked.field("content-length") {
            let mut body = vec![0; length.parse().unwrap_or(0)];
            reader.read_exact(&mut body)?;
            asked.body = body;
        } else if asked.field("transfer-encoding").is_some() {
            asked.body = chunks(&mut reader)?;
        }
        let answer = script(&asked);
        seen.lock().unwrap().push(asked);
        if answer.is_empty() {
            return Ok(());
        }
        writer.write_all(&answer)?;
        let fields = &answer[..answer.len().min(1024)];
        if fields.windows(17).any(|w| w == b"Connection: close") {
            return Ok(());
        }
    }
}

fn chunks(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk)?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

/// An answer with these fields and this body.
pub(super) fn answer(status: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// An answer without its body: to HEAD.
pub(super) fn head(status: &str, fields: &[(&str, &str)], length: usize) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// Answer of a good server about a file.
pub(super) fn file(asked: &ReceivedRequest, body: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![("Accept-Ranges", "bytes")];
    all.extend_from_slice(fields);
    if asked.method == "HEAD" {
        return head("200 OK", &all, body.len());
    }
    let size = body.len() as u64;
    match asked.range(size) {
        None => answer("200 OK", &all, body),
        Some(range) => {
            let told = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            all.push(("Content-Range", &told));
            let part = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            answer("206 Partial Content", &all, &body[part])
        }
    }
}
