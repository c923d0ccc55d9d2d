//! Replies that belong to no outstanding command: a server has answered twice, or late.

use std::mem::MaybeUninit;
use std::time::Duration;

use proto::client::can_answer;
use proto::command::Command;
use proto::reply::Reply;
use socket2::SockRef;
use tokio::time::timeout;

use super::{ClientControlConnection, READ_SIZE};
use crate::Failure;

/// Longest wait for bytes that the kernel has: the runtime may not have noticed them yet, and those of TLS may hold no
/// reply.
const NOTICE_WAIT: Duration = Duration::from_millis(5);
/// Wait for a surplus reply after a command that was followed by one before.
const EXPECTED_SURPLUS_WAIT: Duration = Duration::from_millis(100);
/// Wait for the answer to a command behind a reply that cannot be it. If none comes, the reply was meant.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Most replies that are passed over for one answer.
const MAX_PASSED_OVER: usize = 8;
/// Most reads before a command is sent.
const MAX_READS: usize = 16;

/// Commands that were followed by surplus replies.
#[derive(Debug, Default)]
pub(super) struct SurplusReplies {
    /// The command that was sent last.
    last: Option<&'static str>,
    /// The one before.
    before: Option<&'static str>,
    after: Vec<&'static str>,
}

impl SurplusReplies {
    /// A command is sent; `None`: one without a name.
    pub(super) fn on_sent(&mut self, verb: Option<&'static str>) {
        self.before = std::mem::replace(&mut self.last, verb);
    }

    fn note(&mut self, verb: Option<&'static str>) {
        if let Some(verb) = verb.filter(|verb| !self.after.contains(verb)) {
            self.after.push(verb);
        }
    }

    fn is_expected(&self) -> bool {
        self.last.is_some_and(|verb| self.after.contains(&verb))
    }
}

impl ClientControlConnection {
    /// Sends a command and reads its final reply. One that cannot answer it belongs to an earlier command, and is passed
    /// over if another follows.
    pub(crate) async fn call(&mut self, command: &Command) -> Result<Reply, Failure> {
        self.send(command).await?;
        let unfit = self.final_reply().await?;
        if can_answer(command, &unfit) {
            return Ok(unfit);
        }
        for _ in 0..MAX_PASSED_OVER {
            self.outstanding_replies = 1;
            let Ok(reply) = timeout(ANSWER_WAIT, self.next_reply()).await else {
                break;
            };
            let reply = reply?;
            if can_answer(command, &reply) && !reply.is_preliminary() {
                self.surplus.note(self.surplus.before);
                return Ok(reply);
            }
        }
        self.outstanding_replies = 0;
        Ok(unfit)
    }

    /// Discards replies that have arrived though no command is outstanding; 421 announces the end of the session.
    pub(super) async fn discard_surplus_replies(&mut self) -> Result<(), Failure> {
        let has_ended = self.read_waiting_bytes().await?;
        // Such a reply may have been read together with the last expected one.
        while let Some(reply) = self.take_received() {
            if reply.code == 421 {
                return Err(self.unusable_failure(&crate::failure::display_reply(&reply)));
            }
            self.surplus.note(self.surplus.last);
        }
        match has_ended {
            true => Err(self.connection_lost_failure("the server closed it")),
            false => Ok(()),
        }
    }

    /// Reads what has arrived, without waiting for more unless a surplus reply is expected. Returns whether the server
    /// has closed the connection.
    async fn read_waiting_bytes(&mut self) -> Result<bool, Failure> {
        let patience = match self.surplus.is_expected() {
            true => EXPECTED_SURPLUS_WAIT,
            false => Duration::ZERO,
        };
        for _ in 0..MAX_READS {
            if patience.is_zero() && !self.has_waiting_bytes() {
                break;
            }
            let mut buffer = vec![0; READ_SIZE];
            let wait = patience.max(NOTICE_WAIT);
            // Cut off, the read has taken nothing.
            match timeout(wait, self.transport.read(&mut buffer)).await {
                Err(_) => break,
                Ok(Ok(0)) => return Ok(true),
                Ok(Ok(count)) => self.parse_received(&buffer[..count])?,
                Ok(Err(error)) => return Err(self.transport_failure(&error)),
            }
        }
        Ok(false)
    }

    /// Whether the kernel has bytes of the server, or has seen its end.
    fn has_waiting_bytes(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(&self.transport).peek(&mut byte).is_ok()
    }
}
