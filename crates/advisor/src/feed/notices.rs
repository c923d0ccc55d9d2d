//! Anomalies of the service, handed to those who are told by webhook and mail.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use crate::config::{NotifyConfig, SmtpConfig};
use crate::notify::anomaly::AnomalyEvent;
use crate::notify::email::{MailSecurity, MailSettings, MailSettingsError, Mailer};
use crate::notify::notifier::{Notifier, NotifySettings};
use crate::notify::retry::SendRetry;
use crate::notify::webhook::{Webhook, WebhookUrlError};
use crate::service::{Advisor, AdvisorEvent};

/// Limit for each step of sending.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two digests, and most anomalies in one.
const INTERVAL: Duration = Duration::from_secs(60);
const MOST: usize = 100;
/// Port of mail over TLS from the first byte (RFC 8314).
const TLS_PORT: u16 = 465;
/// Port of mail between servers (RFC 5321).
const SMTP_PORT: u16 = 25;

/// The reason why nobody can be told.
#[derive(Debug, thiserror::Error)]
pub enum NoticeError {
    /// The URL of the webhook.
    #[error("notify.webhook: {0}")]
    Webhook(#[from] WebhookUrlError),
    /// The settings of the mail.
    #[error("notify.smtp: {0}")]
    Mail(#[from] MailSettingsError),
    /// No thread can be started.
    #[error("cannot start the sender of notices: {0}")]
    Thread(#[from] std::io::Error),
}

/// Sends the anomalies of the service to the receivers of its settings; `None` if there are none. It must be called
/// within a tokio runtime. The task ends with the service, or when it is aborted.
///
/// # Errors
/// A receiver's settings cannot work.
pub fn start(advisor: &Advisor) -> Result<Option<JoinHandle<()>>, NoticeError> {
    let NotifyConfig { webhook, smtp } = &advisor.config().notify;
    if webhook.is_none() && smtp.is_none() {
        return Ok(None);
    }
    let retry = SendRetry::default();
    let webhook = webhook.as_deref();
    let webhooks = webhook.map(|url| Webhook::new(url, TIMEOUT, retry));
    let mailer = smtp
        .as_ref()
        .map(|smtp| Mailer::new(mail_settings(smtp, retry)));
    let notifier = Notifier::start(NotifySettings {
        host: advisor.config().server_name.clone(),
        webhooks: webhooks.transpose()?.into_iter().collect(),
        mailer: mailer.transpose()?,
        interval: INTERVAL,
        most: MOST,
    })?;
    let mut events = advisor.subscribe();
    Ok(Some(tokio::spawn(async move {
        loop {
            match events.recv().await {
                Ok(AdvisorEvent::Anomaly(anomaly, at)) => notifier.notify(AnomalyEvent {
                    at,
                    client: anomaly.client,
                    quantity: anomaly.quantity,
                    anomaly: anomaly.event,
                }),
                // Events that were lost are in the log.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    })))
}

/// Mail to another host is protected; a mail server on this machine need not have TLS.
fn mail_settings(smtp: &SmtpConfig, retry: SendRetry) -> MailSettings {
    let (server, port) = match smtp.server.rsplit_once(':') {
        Some((server, port)) => (server, port.parse().unwrap_or(SMTP_PORT)),
        None => (smtp.server.as_str(), SMTP_PORT),
    };
    let server = server.trim_matches(['[', ']']);
    let is_local = server == "localhost"
        || server
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    MailSettings {
        server: server.to_owned(),
        port,
        security: match (port, is_local) {
            (TLS_PORT, _) => MailSecurity::Tls,
            (_, true) => MailSecurity::Plain,
            (_, false) => MailSecurity::StartTls,
        },
        authority: None,
        login: None,
        from: smtp.from.clone(),
        to: smtp.to.clone(),
        timeout: TIMEOUT,
        retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_to_another_host_is_protected() {
        let settings = |server: &str| {
            let smtp = SmtpConfig {
                server: server.to_owned(),
                from: "a@example".to_owned(),
                to: vec!["b@example".to_owned()],
            };
            let settings = mail_settings(&smtp, SendRetry::default());
            (settings.server, settings.port, settings.security)
        };
        let wanted = |server: &str, port, security| (server.to_owned(), port, security);
        assert_eq!(
            settings("mail.example:587"),
            wanted("mail.example", 587, MailSecurity::StartTls)
        );
        assert_eq!(
            settings("mail.example:465"),
            wanted("mail.example", 465, MailSecurity::Tls)
        );
        assert_eq!(
            settings("[::1]:2525"),
            wanted("::1", 2525, MailSecurity::Plain)
        );
        assert_eq!(
            settings("localhost:25"),
            wanted("localhost", 25, MailSecurity::Plain)
        );
    }
}
