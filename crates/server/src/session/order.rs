//! Makes a transfer order from a request, the session and the configuration.

use std::sync::Arc;

use data::options::CongestionChoice;
use proto::server::{FileError, FileErrorKind, TransferRequest};
use proto::stripes::Stripe;
use tune::Prior;

use super::{LoginStatus, SessionDriver};
use crate::config::ServerConfig;
use crate::limits::QueuePermit;
use crate::secure::DataProtectionError;
use crate::transfer::{DataAddresses, LocalHandles, TransferMemory, TransferOrder, TransferTerms};

impl SessionDriver {
    /// The order, and the local handles that carry it out. Takes the session's data channel.
    pub(super) fn transfer_order(
        &mut self,
        request: TransferRequest,
        permit: QueuePermit,
    ) -> Result<(TransferOrder, LocalHandles), FileError> {
        let LoginStatus::LoggedIn(login) = &self.login else {
            return Err(not_logged_in_error());
        };
        let files = login.files.clone();
        let line = self
            .control
            .control_socket()
            .map_err(|e| busy_error(e.to_string()))?;
        let uploader = login.uploader(self.addresses.peer.ip());
        let rate = self.shared.transfer_rate(self.addresses.peer.ip(), login);
        if let Some(listen) = &request.delayed_passive {
            self.note_data_peers(listen);
        }
        let security = self
            .security
            .data_security(&request.protection, &self.shared.material)
            .map_err(|error| protection_error(&error))?;
        let config = &self.shared.config;
        let connections = match &request.delayed_passive {
            None => DataAddresses::of(self.channel.as_ref()),
            Some(listen) => DataAddresses::ToListen {
                options: self.addresses.listen_options(listen, config)?,
                public: config.public_address,
            },
        };
        let sends = request.kind.is_retrieve();
        let memory = self.shared.history.clone().filter(|_| sends);
        let memory = memory.map(|history| {
            let control = &self.addresses;
            let peer = match &connections {
                DataAddresses::Targets(targets) => targets.first().ip(),
                _ => control.peer.ip(),
            };
            TransferMemory::new(history, (control.local.ip(), peer), control.direct_peer())
        });
        let order = TransferOrder {
            terms: transfer_terms(&request, config),
            request,
            stripe: Stripe::SINGLE,
            connections,
            uploader,
        };
        let handles = LocalHandles {
            files,
            control_socket: Arc::new(line),
            // The channel moves to the worker and comes back with the result, so no lock is needed.
            channel: self.channel.take(),
            stream_budget: self.shared.client_stream_budget(self.addresses.peer.ip()),
            rate,
            drs: self.drs.clone(),
            security: security.map(Arc::new),
            memory,
            permit,
        };
        Ok((order, handles))
    }
}

/// The terms from the configuration and the client's request.
fn transfer_terms(request: &TransferRequest, config: &ServerConfig) -> TransferTerms {
    let sends = request.kind.is_retrieve();
    let configured = &config.transfer;
    TransferTerms {
        congestion: match sends {
            // Only the sender's congestion control matters; a receiver keeps the system's.
            true => congestion(request, config),
            false => CongestionChoice::System,
        },
        drs_interval: configured.drs_interval,
        io: configured.io,
        block: configured.block,
        stall: configured.stall,
        // Waiting for the first connection is a stall like any other.
        connect: configured.stall,
        most_connections: config.max_streams_per_transfer as usize,
        prior: Prior::default(),
    }
}

/// The congestion control. A client's `auto` means the server's default, which the administrator may
/// have set to another one.
fn congestion(request: &TransferRequest, config: &ServerConfig) -> CongestionChoice {
    match request.congestion_control.as_str() {
        "" | "auto" => config.transfer.congestion.clone(),
        asked => CongestionChoice::parse(asked),
    }
}

/// The error for a resource that is exhausted for the moment.
pub(super) fn busy_error(text: String) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text,
    }
}

/// The error of a transfer whose protection cannot be had. It never goes on with less.
fn protection_error(error: &DataProtectionError) -> FileError {
    tracing::warn!(%error, "transfer refused for lack of protection");
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: error.to_string(),
    }
}

/// The error of a request without a login.
pub(super) fn not_logged_in_error() -> FileError {
    FileError {
        kind: FileErrorKind::Denied,
        errno: None,
        text: "not logged in".to_owned(),
    }
}
