//! An advice server that gives fixed answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use enable::xmlrpc::{Call, read_call, write_answer, write_fault};
use serde_json::Value;

/// An answer: a value, or code and text of a fault.
pub(crate) type ScriptedAnswer = Result<Value, (i32, &'static str)>;

/// The calls so far, each with the Authorization field.
pub(crate) type NotedCalls = Arc<Mutex<Vec<(Call, Option<String>)>>>;

/// The server; it answers every call alike.
pub(crate) struct ScriptedAdvisor {
    pub(crate) address: SocketAddr,
    pub(crate) calls: NotedCalls,
}

impl ScriptedAdvisor {
    pub(crate) fn start(answer: ScriptedAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                answer_one(stream, &answer, &noted);
            }
        });
        Self { address, calls }
    }

    pub(crate) fn server(&self) -> String {
        self.address.to_string()
    }

    /// The only call.
    pub(crate) fn call(&self) -> (Call, Option<String>) {
        let mut calls = self.calls.lock().unwrap();
        assert_eq!(calls.len(), 1);
        calls.remove(0)
    }
}

fn answer_one(
    stream: TcpStream,
    answer: &ScriptedAnswer,
    calls: &Mutex<Vec<(Call, Option<String>)>>,
) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim_end().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let call = read_call(&body).unwrap();
    calls.lock().unwrap().push((call, authorization));
    let body = match answer {
        Ok(value) => write_answer(value).unwrap(),
        Err((code, text)) => write_fault(*code, text).unwrap(),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = reader.get_mut().write_all((head + &body).as_bytes());
}
