//! A digest as a mail, sent by SMTP (RFC 5321).

use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport};

use super::anomaly::AnomalyBatch;
use super::retry::{NotifyError, SendFailure, SendRetry};

/// Protection of the connection to the mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// None: for a mail server on this machine.
    Plain,
    /// STARTTLS (RFC 3207), required: nothing is sent to a server without it.
    StartTls,
    /// TLS from the first byte (RFC 8314).
    Tls,
}

/// The mail server, the sender and the receivers.
#[derive(Clone)]
pub struct MailSettings {
    /// Name or address of the mail server.
    pub server: String,
    /// Its port.
    pub port: u16,
    /// Protection of the connection.
    pub security: MailSecurity,
    /// Certificate of a further authority, PEM, for mail servers with a certificate of the site's own. The
    /// authorities of this machine count in any case.
    pub authority: Option<Vec<u8>>,
    /// User name and password. Refused on unprotected connections.
    pub login: Option<(String, String)>,
    /// The sender.
    pub from: String,
    /// The receivers.
    pub to: Vec<String>,
    /// Limit for connecting, and for each command.
    pub timeout: Duration,
    /// Attempts.
    pub retry: SendRetry,
}

/// Settings that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum MailSettingsError {
    /// Not an address.
    #[error("{address:?} is no mail address")]
    Address {
        /// The text.
        address: String,
    },
    /// Nobody to send to.
    #[error("no receiver is given")]
    NoReceiver,
    /// The password would be readable on the way.
    #[error("a login needs a protected connection: use starttls or tls")]
    ClearPassword,
    /// OpenSSL cannot be prepared.
    #[error("TLS cannot be used: {0}")]
    Tls(lettre::transport::smtp::Error),
}

/// Sends digests to the receivers.
#[derive(Debug)]
pub struct Mailer {
    server: String,
    transport: SmtpTransport,
    from: Mailbox,
    to: Vec<Mailbox>,
    retry: SendRetry,
}

impl Mailer {
    /// Checks the settings. No connection is made.
    ///
    /// # Errors
    /// The settings cannot work.
    pub fn new(settings: MailSettings) -> Result<Self, MailSettingsError> {
        let mailbox = |address: &String| {
            address
                .parse::<Mailbox>()
                .map_err(|_| MailSettingsError::Address {
                    address: address.clone(),
                })
        };
        let to: Vec<Mailbox> = settings.to.iter().map(mailbox).collect::<Result<_, _>>()?;
        if to.is_empty() {
            return Err(MailSettingsError::NoReceiver);
        }
        if settings.login.is_some() && settings.security == MailSecurity::Plain {
            return Err(MailSettingsError::ClearPassword);
        }
        let parameters = || {
            let mut builder = TlsParameters::builder(settings.server.clone());
            if let Some(pem) = &settings.authority {
                builder = builder.add_root_certificate(Certificate::from_pem(pem)?);
            }
            builder.build()
        };
        let parameters = || parameters().map_err(MailSettingsError::Tls);
        let tls = match settings.security {
            MailSecurity::Plain => Tls::None,
            MailSecurity::StartTls => Tls::Required(parameters()?),
            MailSecurity::Tls => Tls::Wrapper(parameters()?),
        };
        // "Dangerous" is its default of no protection, which is replaced here.
        let mut transport = SmtpTransport::builder_dangerous(&settings.server)
            .port(settings.port)
            .tls(tls)
            .timeout(Some(settings.timeout));
        if let Some((user, password)) = settings.login {
            transport = transport.credentials(Credentials::new(user, password));
        }
        Ok(Self {
            transport: transport.build(),
            from: mailbox(&settings.from)?,
            server: settings.server,
            to,
            retry: settings.retry,
        })
    }

    /// Sends a digest. Blocks for the time of all attempts.
    ///
    /// # Errors
    /// No attempt succeeded, or the server refused.
    pub fn send(&self, host: &str, batch: &AnomalyBatch) -> Result<(), NotifyError> {
        self.retry.run(&self.server, || self.attempt(host, batch))
    }

    fn attempt(&self, host: &str, batch: &AnomalyBatch) -> Result<(), SendFailure> {
        let lasting = |reason: String| SendFailure::Lasting(reason);
        let mut message = Message::builder()
            .from(self.from.clone())
            .subject(batch.subject(host));
        for to in &self.to {
            message = message.to(to.clone());
        }
        let message = message
            .body(batch.to_text())
            .map_err(|error| lasting(error.to_string()))?;
        match self.transport.send(&message) {
            Ok(_) => Ok(()),
            // 5yz replies (RFC 5321 section 4.2.1), and a server that lacks the protection that is required.
            Err(error) if error.is_permanent() || error.is_client() || error.is_tls() => {
                Err(lasting(error.to_string()))
            }
            Err(error) => Err(SendFailure::Passing(error.to_string())),
        }
    }
}
