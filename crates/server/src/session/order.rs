//! From a transfer request to an order: what the session and the configuration add to it.

use std::sync::Arc;

use data::job::Settings;
use proto::command::Mode;
use proto::server::{FileError, FileErrorKind, TransferKind, TransferRequest};

use super::{Driver, Who, not_logged_in};
use crate::transfer::Order;

impl Driver {
    /// Takes the session's channel and its share of the streams.
    pub(super) fn order(&mut self, request: TransferRequest) -> Result<Order, FileError> {
        let Who::User(login) = &self.who else {
            return Err(not_logged_in());
        };
        let files = login.files.clone();
        let config = &self.shared.config;
        let permit = Arc::clone(&self.shared.streams)
            .try_acquire_many_owned(streams_opened(&request))
            .map_err(|_| busy("too many data streams on this server".to_owned()))?;
        let listen = match &request.delayed_passive {
            None => None,
            Some(listen) => {
                let options = self.ends.listen_options(listen, config)?;
                Some((options, config.public_address))
            }
        };
        let settings = Settings {
            mode: request.mode,
            type_: request.type_,
            streams: request.streams as usize,
            block: config.block,
            io: config.io,
            sum: None,
            rate: None,
            stall: config.stall_timeout,
            connect: config.stall_timeout,
            send_buffer: request.send_buffer,
            receive_buffer: request.receive_buffer,
            congestion: None,
            close_after: false,
        };
        Ok(Order {
            request,
            files,
            channel: self.channel.take(),
            listen,
            settings,
            permit,
        })
    }
}

/// Streams that the server itself opens; a receiver's peer decides how many there are, and counts
/// as one until they come.
fn streams_opened(request: &TransferRequest) -> u32 {
    let sends = !matches!(request.what, TransferKind::Store { .. });
    if sends && request.mode == Mode::Extended {
        request.streams.max(1)
    } else {
        1
    }
}

/// A refusal for want of something that comes back.
pub(super) fn busy(text: String) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text,
    }
}
