//! Questions to an Enable server, with time-outs. A call blocks its thread.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::Agent;

use crate::advice::{Advice, DEFAULT_PORT, QosAdvice, QosQuestion, Question};
use crate::method::{self, Method};
use crate::xmlrpc::{self, AnswerError, Call, MAX_BODY, XmlRpcError};

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// The name of the server cannot be used.
    #[error("{server:?} is no advice server: name a host, HOST:PORT, or http://HOST:PORT")]
    Server {
        /// The name as given.
        server: String,
    },
    /// No server answers there.
    #[error("no advice server answers at {server}: {reason}")]
    NoServer {
        /// Host and port.
        server: String,
        /// The failure of the connection.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("the advice server at {server} did not answer within {}", units::show::time(*.waited))]
    TimedOut {
        /// Host and port.
        server: String,
        /// The limit.
        waited: Duration,
    },
    /// The server refused the call.
    #[error("the advice server at {server} refused {method}: {message}")]
    Refused {
        /// Host and port.
        server: String,
        /// The method.
        method: &'static str,
        /// Code of the fault ([`crate::method::fault`]), or the HTTP status.
        code: i32,
        /// The server's explanation.
        message: String,
    },
    /// The response is not an answer to the call.
    #[error("{server} did not answer {method} as an advice server does: {reason}")]
    Answer {
        /// Host and port.
        server: String,
        /// The method.
        method: &'static str,
        /// The mistake in the answer.
        reason: String,
    },
}

/// A client of one Enable server.
#[derive(Debug, Clone)]
pub struct EnableClient {
    agent: Agent,
    /// Host and port.
    server: String,
    timeout: Duration,
    /// Value of the Authorization field.
    authorization: Option<String>,
}

impl EnableClient {
    /// A client of the server on `server`: a host, HOST:PORT, or `http://HOST:PORT`. Nothing is sent yet.
    /// `timeout` bounds each call as a whole.
    ///
    /// # Errors
    /// [`EnableError::Server`].
    pub fn new(server: &str, timeout: Duration) -> Result<Self, EnableError> {
        let address = address_of(server).ok_or_else(|| EnableError::Server {
            server: server.to_owned(),
        })?;
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("enable/", env!("CARGO_PKG_VERSION")))
            // A proxy's path is not the caller's.
            .proxy(None)
            .build()
            .new_agent();
        Ok(Self {
            agent,
            server: address,
            timeout,
            authorization: None,
        })
    }

    /// The same client with the token that methods need which change something.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.authorization = Some(format!("Bearer {}", token.trim()));
        self
    }

    /// Host and port of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Best TCP buffer for the path from the data server to this host, bytes.
    ///
    /// # Errors
    /// Why there is no answer; a path that the server does not know yet is
    /// [`EnableError::Refused`] with [`crate::method::fault::UNKNOWN_PATH`].
    pub fn buffer_size(&self) -> Result<u64, EnableError> {
        self.typed(&method::GET_BUFFER_SIZE, vec![self.host()])
    }

    /// Results of all tests of the path to `client`, or to this host.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn net_info(&self, client: Option<&str>) -> Result<Value, EnableError> {
        let named = client.map(Value::from);
        let arguments = std::iter::once(self.host()).chain(named).collect();
        self.call(&method::GET_NET_INFO, arguments)
    }

    /// Advice for a transfer. A question about this host tells what its processors can receive.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn advice(&self, question: &Question) -> Result<Advice, EnableError> {
        let question = question.clone().with_own_processor();
        self.typed(&method::GET_ADVICE, vec![self.host(), json!(question)])
    }

    /// Service class, and whether a reservation would help.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn qos(&self, question: &QosQuestion) -> Result<QosAdvice, EnableError> {
        self.typed(&method::GET_QOS, vec![self.host(), json!(question)])
    }

    /// Calls any method.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn call(&self, method: &Method, arguments: Vec<Value>) -> Result<Value, EnableError> {
        let answer_error = |reason: String| EnableError::Answer {
            server: self.server.clone(),
            method: method.name,
            reason,
        };
        let body = xmlrpc::write_call(&Call {
            method: method.name.to_owned(),
            arguments,
        })
        .map_err(|error| answer_error(error.to_string()))?;
        let mut request = self
            .agent
            .post(format!("http://{}/RPC2", self.server))
            .content_type("text/xml");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let mut response = request
            .send(&body)
            .map_err(|error| self.no_answer(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(EnableError::Refused {
                server: self.server.clone(),
                method: method.name,
                code: status.as_u16().into(),
                message: format!("HTTP status {status}"),
            });
        }
        let body = response
            .body_mut()
            .with_config()
            .limit(MAX_BODY as u64 + 1)
            .read_to_vec()
            .map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => answer_error(XmlRpcError::TooLong.to_string()),
                other => self.no_answer(&other),
            })?;
        xmlrpc::read_answer(&body).map_err(|error| match error {
            AnswerError::Fault { code, message } => EnableError::Refused {
                server: self.server.clone(),
                method: method.name,
                code,
                message,
            },
            AnswerError::Body(error) => answer_error(error.to_string()),
        })
    }

    fn typed<T: DeserializeOwned>(
        &self,
        method: &Method,
        arguments: Vec<Value>,
    ) -> Result<T, EnableError> {
        let answer = self.call(method, arguments)?;
        serde_json::from_value(answer).map_err(|error| EnableError::Answer {
            server: self.server.clone(),
            method: method.name,
            reason: error.to_string(),
        })
    }

    /// The first argument of each method: the data server that is asked.
    fn host(&self) -> Value {
        let host = self.server.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_matches(['[', ']']).into()
    }

    fn no_server(&self, reason: String) -> EnableError {
        EnableError::NoServer {
            server: self.server.clone(),
            reason,
        }
    }

    fn no_answer(&self, error: &ureq::Error) -> EnableError {
        match error {
            ureq::Error::Timeout(_) => EnableError::TimedOut {
                server: self.server.clone(),
                waited: self.timeout,
            },
            ureq::Error::Io(error) => self.no_server(error.to_string()),
            other => self.no_server(other.to_string()),
        }
    }
}

/// Host and port, or `None` if the text cannot be one.
fn address_of(server: &str) -> Option<String> {
    let rest = server.strip_prefix("http://").unwrap_or(server);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    // An IPv6 address without brackets has colons, but no port.
    let bare_ipv6 = rest.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !bare_ipv6 && !rest.ends_with(']') => (host, port.parse().ok()?),
        _ => (rest, DEFAULT_PORT),
    };
    let host = host.trim_matches(['[', ']']);
    let name_character = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("[{host}]:{port}"));
    }
    let valid = !host.is_empty() && host.len() < 254 && host.chars().all(name_character);
    valid.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_is_a_host_with_or_without_port_and_scheme() {
        for (given, expected) in [
            ("data.example.org", Some("data.example.org:2812")),
            ("data:99", Some("data:99")),
            ("http://data:99/", Some("data:99")),
            ("::1", Some("[::1]:2812")),
            ("[2001:db8::1]:7", Some("[2001:db8::1]:7")),
            ("[2001:db8::1]", Some("[2001:db8::1]:2812")),
            ("", None),
            ("a b", None),
            ("host:port", None),
            ("host:99999", None),
            ("https://host", None),
            ("host/path", None),
        ] {
            assert_eq!(address_of(given).as_deref(), expected, "{given}");
        }
    }

    /// Answers one request with these bytes.
    fn server_that_says(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.ends_with(b"</methodCall>\n") {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    fn asked(answer: &'static str) -> Result<u64, EnableError> {
        let address = server_that_says(answer);
        EnableClient::new(&address, Duration::from_secs(30))
            .unwrap()
            .buffer_size()
    }

    #[test]
    fn the_answer_of_a_server_is_returned() {
        let answer = "<methodResponse><params><param><value><int>4194304</int></value></param></params></methodResponse>";
        assert_eq!(asked(answer).unwrap(), 4_194_304);
    }

    #[test]
    fn a_fault_and_a_strange_answer_are_different_errors() {
        let fault = "<methodResponse><fault><value><struct><member><name>faultCode</name><value><int>404</int></value></member><member><name>faultString</name><value><string>not yet</string></value></member></struct></value></fault></methodResponse>";
        let error = asked(fault).unwrap_err();
        assert!(
            matches!(error, EnableError::Refused { code: 404, .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .ends_with("refused EnableGetBufferSize: not yet")
        );
        let error = asked("<html>hello</html>").unwrap_err();
        assert!(matches!(error, EnableError::Answer { .. }), "{error}");
    }

    #[test]
    fn nobody_listening_and_nobody_answering_are_told_apart() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        // It listens and never accepts.
        let silent = EnableClient::new(&address, Duration::from_millis(50)).unwrap();
        let error = silent.buffer_size().unwrap_err();
        assert!(matches!(error, EnableError::TimedOut { .. }), "{error}");
        drop(free);
        let error = EnableClient::new(&address, Duration::from_secs(30))
            .unwrap()
            .buffer_size()
            .unwrap_err();
        assert!(matches!(error, EnableError::NoServer { .. }), "{error}");
    }
}
