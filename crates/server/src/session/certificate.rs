//! The client's certificate while its session lasts: it may be revoked, or its authority removed. New commands need one that is
//! still accepted; a transfer that runs goes on, as with a token that expires.

use std::sync::Arc;
use std::time::Duration;

use security::x509::PeerIdentity;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::secure::SecurityMaterial;
use crate::state::ServerState;

/// Time after which the certificate of a client is looked at again before its next command. Revocation lists are replaced
/// every few hours, without a signal to the server.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// When the client's certificate was last accepted, and by which authorities it is judged.
pub(super) struct CertificateWatch {
    material: watch::Receiver<Arc<SecurityMaterial>>,
    accepted: Instant,
}

impl CertificateWatch {
    /// For a session that begins now.
    pub(super) fn new(shared: &ServerState, now: Instant) -> Self {
        let mut material = shared.subscribe_material();
        material.mark_unchanged();
        Self {
            material,
            accepted: now,
        }
    }

    /// Waits until the server's authorities are read again. Cancel-safe.
    pub(super) async fn reloaded(&mut self) {
        // Without a server nothing is read again.
        if self.material.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.material.mark_changed();
    }

    /// Why the certificate of `client` is no longer accepted. It is looked at after a reload, and at most once a minute.
    pub(super) async fn refusal(&mut self, client: Option<&PeerIdentity>) -> Option<String> {
        let material = self.due()?;
        self.accepted = Instant::now();
        let client = client?.clone();
        // It reads files.
        let checked = tokio::task::spawn_blocking(move || material.check_again(&client)).await;
        match checked {
            Ok(Ok(())) => None,
            Ok(Err(refused)) => Some(refused.to_string()),
            Err(ended) => Some(ended.to_string()),
        }
    }

    /// The material by which the certificate is to be judged now; `None`: it was, a short time ago.
    fn due(&mut self) -> Option<Arc<SecurityMaterial>> {
        let is_due = self.material.has_changed().unwrap_or_default()
            || self.accepted.elapsed() >= LOOK_AGAIN;
        is_due.then(|| Arc::clone(&self.material.borrow_and_update()))
    }
}
