//! Server to server: this machine only speaks (RFC 959 §5.2, GFD.20 §3).
//!
//! The destination listens and the source connects to exactly the address that was told. STOR is
//! sent without waiting for its 150, which comes only when the source has connected.

use std::net::SocketAddr;

use data::job::Report;
use proto::client::{Direction, DrsEnd, Need, NoPartial, Refusal, Retrieval, Step, retrieval};
use proto::command::{Command, Mode, Restart};
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::sizing::Sizing;
use proto::streams::StreamRange;

use super::duplex::{Duplex, Progress};
use super::prepare::Prepared;
use super::{Attempt, TransferSpec, choice, put};
use crate::session::{Session, check_path, shown};
use crate::{Exit, Failure};

/// What both servers were brought to.
struct Agreed {
    mode: Mode,
    retrieval: Retrieval,
    have: RangeSet,
    sizing: Sizing,
}

/// Server to server. Progress arrives by 112 markers (MODE E) in `progress`, bytes so far;
/// MODE S transfers are silent until they end, so that the caller has to look for a stall there.
///
/// # Errors
/// The refusal of the side that failed first, by its class; `Integrity` when both confirmed a
/// transfer whose last marker tells another length; `Unreachable` (transient) for lost
/// connections: what the destination reported as stored is in `spec.marked`.
pub async fn third_party(
    source: &mut Session,
    source_path: &[u8],
    destination: &mut Session,
    destination_path: &[u8],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Attempt, Failure> {
    check_path(source_path)?;
    check_path(destination_path)?;
    let mut warnings = Vec::new();
    let mut sides = Sides {
        source,
        source_path,
        destination,
        destination_path,
        spec,
    };
    let agreed = sides.agree(&mut warnings).await?;
    sides.start(&agreed).await?;
    let sending = format!("send {}", shown(source_path));
    let receiving = format!("write {}", shown(destination_path));
    let mut watch = Progress::new(&spec.marked, progress);
    let outcome = Duplex {
        source: sides.source,
        sending: &sending,
        destination: sides.destination,
        receiving: &receiving,
        patience: spec.timeout,
    }
    .run(&mut watch)
    .await;
    sides.forget_channels();
    let remarks = outcome?;
    let bytes = sides.moved(&agreed, &receiving, watch.bytes())?;
    Ok(Attempt {
        report: Report {
            bytes,
            ..Report::default()
        },
        extended: agreed.mode == Mode::Extended,
        streams: u64::from(choice::streams(source, agreed.mode, spec).start),
        buffers: choice::buffers_of(spec, agreed.sizing),
        remarks,
        warnings,
    })
}

struct Sides<'a> {
    source: &'a mut Session,
    source_path: &'a [u8],
    destination: &'a mut Session,
    destination_path: &'a [u8],
    spec: &'a TransferSpec,
}

/// Why agreement starts again.
enum Again {
    StreamMode,
    StartOver,
    /// One of them has no part in the right-sizing that was wanted: each does its own.
    Sizing,
}

/// What the user is told when [`Sizing::Drs1`] is wanted between two servers.
const NOT_BETWEEN: &str = "cannot be told buffer sizes on the control channel while another server \
     receives (the first drsFTP knows no third party); each server sizes its own (--buffer auto)";

impl Sides<'_> {
    /// Brings both servers to the same mode, the destination to listen and the source to know
    /// where.
    async fn agree(&mut self, warnings: &mut Vec<String>) -> Result<Agreed, Failure> {
        let mut mode = choice::mode(self.source, self.spec, warnings);
        if mode == Mode::Extended {
            mode = choice::mode(self.destination, self.spec, warnings);
        }
        let mut have = choice::have_for(mode, &self.spec.have);
        let mut sizing = self.agree_sizing(warnings);
        loop {
            let retrieval = self.retrieval(mode, &have).await?;
            let mut kept = RangeSet::new();
            kept.insert(0, retrieval.start);
            let agreed = Agreed {
                mode,
                have: if mode == Mode::Stream { kept } else { have },
                retrieval,
                sizing,
            };
            match self.set_up(&agreed, warnings).await? {
                None => return Ok(agreed),
                Some(Again::StreamMode) => {
                    mode = Mode::Stream;
                    have = choice::have_for(mode, &self.spec.have);
                }
                Some(Again::StartOver) if self.spec.part.is_some() => {
                    return Err(self.no_partial());
                }
                Some(Again::StartOver) => have = RangeSet::new(),
                Some(Again::Sizing) => {
                    sizing = Sizing::Auto;
                    have = agreed.have;
                }
            }
        }
    }

    /// Who sizes the servers' buffers. Where both must have a part in it, one that has none is
    /// enough to leave it to each of them.
    fn agree_sizing(&mut self, warnings: &mut Vec<String>) -> Sizing {
        let wish = self.spec.sizing;
        match wish {
            Sizing::Auto | Sizing::Kernel => wish,
            Sizing::Drs1 => {
                self.source.warn(warnings, NOT_BETWEEN);
                Sizing::Auto
            }
            Sizing::Drs => {
                let source = self.source.agree_sizing(wish, warnings);
                let destination = self.destination.agree_sizing(wish, warnings);
                let refused = self.source.dialogue.drs_connecting_refused()
                    || self.destination.dialogue.drs_listening_refused();
                if source == destination && !refused {
                    source
                } else {
                    Sizing::Auto
                }
            }
        }
    }

    /// Where the destination listens for the DRS channel between the servers, to which the source
    /// connects; `None`: nowhere, or one of them takes no part after all.
    async fn open_drs(
        &mut self,
        warnings: &mut Vec<String>,
    ) -> Result<Option<DrsAddress>, Failure> {
        let ends = [&*self.source, &*self.destination];
        if ends
            .iter()
            .any(|end| end.dialogue.agreed(Sizing::Drs) != Sizing::Drs)
        {
            return Ok(None);
        }
        match self.destination.dialogue.drs() {
            Some(DrsEnd::Listens(address)) => Ok(Some(address)),
            _ => self.destination.ask_drs(warnings).await,
        }
    }

    /// How the source is asked. Nobody can stop it between two servers, so a part that REST alone
    /// expresses must reach to the end of the file.
    async fn retrieval(&mut self, mode: Mode, have: &RangeSet) -> Result<Retrieval, Failure> {
        let (path, part) = (self.source_path, self.spec.part);
        let Ok(found) = retrieval(self.source.features(), mode, path, part, have) else {
            return Err(self.no_partial());
        };
        if let (true, Some((offset, length))) = (found.overruns, part) {
            let size = self.source.stat(path).await?.size;
            if size != offset.checked_add(length) {
                return Err(self.no_partial());
            }
        }
        Ok(found)
    }

    fn no_partial(&self) -> Failure {
        Failure {
            exit: Exit::Protocol,
            message: format!(
                "cannot copy a part of {} from {} to another server: {NoPartial}; copy the whole \
                 file, or by way of this machine",
                shown(self.source_path),
                self.source.name()
            ),
            transient: false,
        }
    }

    async fn set_up(
        &mut self,
        agreed: &Agreed,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Again>, Failure> {
        let receive = self.receive_need(agreed);
        let send = self.send_need(agreed);
        let writing = format!("write {}", shown(self.destination_path));
        let reading = format!("read {}", shown(self.source_path));
        for (session, need, doing) in [
            (&mut *self.source, &send, &reading),
            (&mut *self.destination, &receive, &writing),
        ] {
            let steps = session.dialogue.settings(need);
            if let Some(again) = carry_out(session, steps, doing, warnings).await? {
                return Ok(Some(again));
            }
        }
        let drs = match agreed.sizing {
            Sizing::Drs => match self.open_drs(warnings).await? {
                None => return Ok(Some(Again::Sizing)),
                some => some,
            },
            _ => None,
        };
        let address = self.destination.ask_passive().await?;
        if let Some(told) = drs {
            // The source connects there only where its data goes.
            let at = SocketAddr::new(address.ip(), told.at.port());
            let channel = DrsAddress { at, ..told };
            if !self.source.tell_drs(channel, warnings).await? {
                return Ok(Some(Again::Sizing));
            }
        }
        let mut steps = Vec::new();
        if let Some(size) = self.spec.size {
            steps.push(Step::Set(Command::Allo(size), Refusal::Harmless));
        }
        steps.extend(rest_step(agreed.mode, receive.restart));
        if let Some(again) = carry_out(self.destination, steps, &writing, warnings).await? {
            return Ok(Some(again));
        }
        self.source.tell_active(address).await?;
        let steps = rest_step(agreed.mode, send.restart).into_iter().collect();
        carry_out(self.source, steps, &reading, warnings).await
    }

    fn receive_need(&self, agreed: &Agreed) -> Need {
        Need {
            direction: Direction::Receive,
            mode: agreed.mode,
            streams: StreamRange::fixed(1),
            congestion: None,
            buffer: self.spec.buffer,
            sizing: Some(agreed.sizing),
            allocate: self.spec.size,
            store_sum: self.spec.remote_sum,
            restart: put::restart(agreed.mode, &agreed.have),
            server_listens: true,
            reusable: false,
            verb: choice::store_verb(self.spec, self.destination_path),
        }
    }

    fn send_need(&self, agreed: &Agreed) -> Need {
        Need {
            direction: Direction::Send,
            mode: agreed.mode,
            streams: choice::streams(self.source, agreed.mode, self.spec),
            congestion: choice::congestion(self.spec),
            buffer: self.spec.buffer,
            sizing: Some(agreed.sizing),
            allocate: None,
            store_sum: None,
            restart: agreed.retrieval.restart.clone(),
            server_listens: false,
            reusable: false,
            verb: agreed.retrieval.verb.clone(),
        }
    }

    async fn start(&mut self, agreed: &Agreed) -> Result<(), Failure> {
        let store = choice::store_verb(self.spec, self.destination_path);
        self.destination.control.send(&store).await?;
        let sent = self.source.control.send(&agreed.retrieval.verb).await;
        if sent.is_err() {
            // The destination waits for a connection that will not come.
            self.destination.control.abandon();
        }
        sent
    }

    fn forget_channels(&mut self) {
        for session in [&mut *self.source, &mut *self.destination] {
            session.channel = None;
            session.dialogue.channel_lost();
        }
    }

    /// Bytes moved: by the destination's last marker if it sent any, which must agree with what
    /// was to be moved.
    fn moved(&self, agreed: &Agreed, receiving: &str, marked: Option<u64>) -> Result<u64, Failure> {
        let expected = self.spec.size.map(|size| agreed.have.gaps(0, size).bytes());
        match (marked, expected) {
            (Some(marked), Some(expected)) if marked != expected => Err(choice::incomplete(
                self.destination.name(),
                receiving,
                marked,
                expected,
            )),
            (marked, expected) => Ok(marked.or(expected).unwrap_or(0)),
        }
    }
}

fn rest_step(mode: Mode, restart: Option<Restart>) -> Option<Step> {
    let refusal = match mode {
        Mode::Stream => Refusal::StartOver,
        Mode::Extended => Refusal::Fatal,
    };
    restart.map(|restart| Step::Set(Command::Rest(restart), refusal))
}

async fn carry_out(
    session: &mut Session,
    steps: Vec<Step>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<Again>, Failure> {
    for step in steps {
        let Step::Set(command, refusal) = step else {
            continue;
        };
        match session.set(&command, refusal, doing, warnings).await? {
            Some(Prepared::StreamMode) => {
                session.warn(warnings, choice::NO_EXTENDED);
                return Ok(Some(Again::StreamMode));
            }
            Some(Prepared::StartOver) => return Ok(Some(Again::StartOver)),
            Some(Prepared::Ready { .. }) | None => {}
        }
    }
    Ok(None)
}
