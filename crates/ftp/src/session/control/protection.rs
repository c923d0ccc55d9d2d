//! Protection of the control connection: TLS around all bytes, or GSI around each line.

use std::time::Duration;

use data::transport::tls_error;
use proto::client::IacHandling;
use proto::command::Secret;
use proto::reply::{ProtectedReplyError, Reply, ReplyReader};
use security::gsi::{GsiContext, GsiError};
use security::tls::{TlsConfig, TlsEngine};
use tokio::time::timeout;

use super::protected_lines::ProtectedLines;
use super::{ClientControlConnection, IAC};
use crate::Failure;
use crate::protection::{gsi_failure, handshake_failure, tls_failure};

/// Longest wait for an alert on a connection that is broken already.
const ALERT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most reads before an alert, so that no server can keep the client busy.
const MAX_READS_BEFORE_ALERT: usize = 16;

impl ClientControlConnection {
    /// Performs a TLS handshake. Nothing that was received before it is used afterwards. `greeted`:
    /// the greeting has been read before.
    ///
    /// # Errors
    /// `Refused`: one end refuses the other. `Protocol`: the server does not speak TLS.
    /// `Unreachable`: the connection was lost.
    pub(crate) async fn start_tls(
        &mut self,
        config: &TlsConfig,
        greeted: bool,
    ) -> Result<(), Failure> {
        self.received_replies.clear();
        self.reader = match greeted {
            true => ReplyReader::new(),
            false => ReplyReader::expecting_greeting(),
        };
        // Unusable until the handshake is complete.
        self.unusable = true;
        let started = self.transport.start_tls(config, None);
        started.map_err(|error| tls_failure(&self.name, &error))?;
        match timeout(self.reply_timeout, self.transport.complete_handshake()).await {
            Ok(Ok(())) => {
                self.unusable = false;
                Ok(())
            }
            Ok(Err(error)) => Err(handshake_failure(&self.name, &error)),
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// From here on every command and reply is inside the context.
    pub(crate) fn start_gsi(&mut self, context: Box<GsiContext>) {
        self.received_replies.clear();
        self.reader = ReplyReader::new();
        self.gsi = Some(ProtectedLines::new(context));
    }

    /// The TLS connection, if there is one.
    pub(crate) fn tls(&self) -> Option<&TlsEngine> {
        self.transport.tls()
    }

    /// Whether anything beyond the replies that were returned has been received.
    pub(crate) fn has_unread_bytes(&self) -> bool {
        !self.received_replies.is_empty() || self.ends_within_a_line
    }

    /// A line as it is sent: with IAC doubled, CR LF, and the protection of the session. It may hold
    /// a password, so it is overwritten, and it has room for CR LF ([`Command::encode`]).
    ///
    /// [`Command::encode`]: proto::command::Command::encode
    pub(super) fn encode_line(&mut self, line: Vec<u8>) -> Result<Secret, Failure> {
        let mut line = Secret(line);
        // RFC 854: 255 as data is sent as IAC IAC.
        if self.iac_handling == IacHandling::Doubled && line.0.contains(&IAC) {
            let mut doubled = Secret(Vec::with_capacity(2 * line.0.len() + 2));
            let times = |byte: &u8| std::iter::repeat_n(*byte, 1 + usize::from(*byte == IAC));
            doubled.0.extend(line.0.iter().flat_map(times));
            line = doubled;
        }
        line.0.extend_from_slice(b"\r\n");
        self.protect(line)
    }

    /// The failure for an error of the connection or of TLS on it. With TLS 1.3 a server refuses a
    /// client's certificate only after the handshake.
    pub(super) fn transport_failure(&mut self, error: &std::io::Error) -> Failure {
        match tls_error(error) {
            Some(error) => {
                self.unusable = true;
                tls_failure(&self.name, error)
            }
            None => self.connection_lost_failure(&error.to_string()),
        }
    }

    /// The failure for an error while sending. A server that refuses this end's certificate says so in an
    /// alert and closes; what it sent before the reset can still be read.
    pub(super) async fn write_failure(&mut self, error: std::io::Error) -> Failure {
        let mut cause = error;
        if self.transport.tls().is_some() && tls_error(&cause).is_none() {
            let mut buffer = [0; 1024];
            for _ in 0..MAX_READS_BEFORE_ALERT {
                match timeout(ALERT_TIMEOUT, self.transport.read(&mut buffer)).await {
                    Ok(Ok(1..)) => {}
                    Ok(Err(alert)) if tls_error(&alert).is_some() => {
                        cause = alert;
                        break;
                    }
                    _ => break,
                }
            }
        }
        self.transport_failure(&cause)
    }

    /// A command line with CR LF as it is sent: unchanged, or inside ENC.
    fn protect(&mut self, line: Secret) -> Result<Secret, Failure> {
        let Some(lines) = &mut self.gsi else {
            return Ok(line);
        };
        lines.wrap(&line).map_err(|error| {
            self.unusable = true;
            gsi_failure(&self.name, &error)
        })
    }

    /// Received bytes with the protection of their lines removed.
    pub(super) fn unprotect(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let Some(lines) = &mut self.gsi else {
            self.ends_within_a_line = bytes.last().is_some_and(|byte| *byte != b'\n');
            return Ok(bytes.to_vec());
        };
        lines.unwrap(bytes).map_err(|error| {
            self.unusable = true;
            match error {
                ProtectedReplyError::Invalid(error) => gsi_failure(&self.name, &error),
                ProtectedReplyError::Clear => Failure::protocol(format!(
                    "{} sent a reply without protection in a GSI session: somebody on the path \
                         may have injected it; try again",
                    self.name
                )),
                other => gsi_failure(&self.name, &GsiError::Token(other.to_string())),
            }
        })
    }

    /// The failure for a reply that the security exchange does not allow.
    pub(crate) fn exchange_failure(&mut self, reply: &Reply, problem: &str) -> Failure {
        self.unusable = true;
        Failure::protocol(format!(
            "{} broke the security exchange: {problem} ({}); report this to its administrator",
            self.name,
            reply.for_log()
        ))
    }
}
