//! A test HTTP server whose responses are computed by a function.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::ranges::ByteRange;

/// A received request.
#[derive(Debug, Clone, Default)]
pub(in crate::storage) struct ReceivedRequest {
    pub(in crate::storage) method: String,
    /// Path and query.
    pub(in crate::storage) path: String,
    /// Header names are in lower case.
    pub(in crate::storage) headers: Vec<(String, String)>,
    pub(in crate::storage) body: Vec<u8>,
    /// Number of the connection, from 0.
    pub(in crate::storage) connection: usize,
}

impl ReceivedRequest {
    pub(in crate::storage) fn header(&self, name: &str) -> Option<&str> {
        let field = self.headers.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value.as_str())
    }

    /// The range that the Range header requests of a file of `size` bytes.
    pub(in crate::storage) fn range(&self, size: u64) -> Option<ByteRange> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let end = last.parse().map_or(size, |last: u64| (last + 1).min(size));
        ByteRange::new(first.parse().ok()?, end)
    }
}

type ResponseScript = dyn Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync;

/// Listens until dropped.
pub(in crate::storage) struct ScriptedHttpServer {
    pub(in crate::storage) address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ScriptedHttpServer {
    /// Sends the bytes that `script` returns for each request. After an empty response the
    /// connection is closed.
    pub(in crate::storage) fn start(
        script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let request = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (requests, script): (_, Arc<ResponseScript>) = (Arc::clone(&request), Arc::new(script));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (requests, script) = (Arc::clone(&requests), Arc::clone(&script));
                std::thread::spawn(move || {
                    // Errors are ignored: a client may close at any time.
                    let _ = stream.and_then(|stream| serve(stream, number, &requests, &*script));
                });
            }
        });
        Self {
            address: at,
            requests: request,
        }
    }

    /// All requests so far.
    pub(in crate::storage) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    pub(in crate::storage) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    requests: &Mutex<Vec<ReceivedRequest>>,
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
        let mut request = ReceivedRequest {
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
            request.headers.push((name, value.trim().to_owned()));
        }
        if request.header("expect").is_some() {
            // With fields, which RFC 9110 section 15.2 permits, and without.
            let fields = match request.header("content-length") {
                Some(_) => "Connection: Close\r\nServer: script\r\n",
                None => "",
            };
            write!(writer, "HTTP/1.1 100 Continue\r\n{fields}\r\n")?;
        }
        if let Some(length) = request.header("content-length") {
            let mut body = vec![0; length.parse().unwrap_or(0)];
            reader.read_exact(&mut body)?;
            request.body = body;
        } else if request.header("transfer-encoding").is_some() {
            request.body = read_chunked_body(&mut reader)?;
        }
        let answer = script(&request);
        requests.lock().push(request);
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

fn read_chunked_body(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
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

/// A response with these headers and this body.
pub(in crate::storage) fn response(status: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// A response to HEAD, without its body.
pub(in crate::storage) fn head_response(
    status: &str,
    fields: &[(&str, &str)],
    length: usize,
) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// The response of a well-behaved server for a file.
pub(in crate::storage) fn file_response(
    request: &ReceivedRequest,
    body: &[u8],
    fields: &[(&str, &str)],
) -> Vec<u8> {
    let mut all = vec![("Accept-Ranges", "bytes")];
    all.extend_from_slice(fields);
    if request.method == "HEAD" {
        return head_response("200 OK", &all, body.len());
    }
    let size = body.len() as u64;
    match request.range(size) {
        None => response("200 OK", &all, body),
        Some(range) => {
            let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            all.push(("Content-Range", &content_range));
            let part = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            response("206 Partial Content", &all, &body[part])
        }
    }
}
