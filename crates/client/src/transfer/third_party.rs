//! Server to server: this machine only speaks (RFC 959 §5.2, GFD.20 §3).
//!
//! The destination listens and the source connects to exactly the address that was told. STOR is
//! sent without waiting for its 150, which comes only when the source has connected.

use std::net::SocketAddr;

use data::job::Report;
use proto::client::{Direction, DrsEnd, Need, NoPartial, Retrieval, Step, retrieval};
use proto::command::{Command, Mode};
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::sizing::Sizing;
use proto::streams::StreamRange;
use proto::stripes::StripeAddresses;

use super::duplex::{Duplex, Progress, TransferExtent};
use super::prepare::Prepared;
use super::{Attempt, TransferSpec, choice, put};
use crate::session::{Session, shown};
use crate::{Exit, Failure};

/// Settings that both servers were brought to.
struct Agreed {
    mode: Mode,
    retrieval: Retrieval,
    have: RangeSet,
    sizing: Sizing,
}

/// [`transfer::third_party`](super::third_party()) in one piece: a file, or a chunk of one.
pub(super) async fn third_party(
    source: &mut Session,
    source_path: &[u8],
    destination: &mut Session,
    destination_path: &[u8],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Attempt, Failure> {
    source.check_path(source_path)?;
    destination.check_path(destination_path)?;
    let mut warnings = Vec::new();
    let mut sides = Sides {
        source,
        source_path,
        destination,
        destination_path,
        spec,
    };
    let agreed = sides.start(&mut warnings).await?;
    let sending = format!("send {}", shown(source_path));
    let receiving = format!("write {}", shown(destination_path));
    let extent = TransferExtent {
        size: spec.size,
        missing: sides.missing(&agreed),
    };
    let mut watch = Progress::new(extent, &spec.marked, progress);
    let outcome = Duplex {
        source: sides.source,
        sending: &sending,
        destination: sides.destination,
        receiving: &receiving,
        patience: spec.options.stall,
        said: &spec.said,
    }
    .run(&mut watch)
    .await;
    sides.forget_channels();
    let remarks = outcome?;
    let bytes = sides.moved(&agreed, &receiving, watch.bytes())?;
    Ok(Attempt {
        report: Report {
            evidence: tune::Evidence {
                bytes,
                ..tune::Evidence::default()
            },
            ..Report::default()
        },
        extended: agreed.mode == Mode::Extended,
        streams: u64::from(choice::streams(source, agreed.mode, spec).start),
        buffers: spec.options.buffers.with_sizing(agreed.sizing),
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
    /// The source refused what was sent ahead of its answer.
    Carefully,
}

/// Message to the user when [`Sizing::Drs1`] is wanted between two servers.
const NOT_BETWEEN: &str = "cannot be told buffer sizes on the control channel while another server \
     receives (the first drsFTP knows no third party); each server sizes its own (--buffer auto)";

impl Sides<'_> {
    /// Brings both servers to the same mode, the destination to listen and the source to know
    /// where, and has them begin.
    async fn start(&mut self, warnings: &mut Vec<String>) -> Result<Agreed, Failure> {
        let mut mode = choice::mode(self.source, self.spec, warnings);
        if mode == Mode::Extended {
            mode = choice::mode(self.destination, self.spec, warnings);
        }
        let mut have = choice::have_for(mode, &self.spec.have);
        let mut sizing = self.agree_sizing(warnings);
        choice::warn_of_congestion(self.source, self.spec, warnings);
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
                Some(Again::Carefully) => {
                    self.source.begin_carefully().await?;
                    have = agreed.have;
                }
            }
        }
    }

    /// Who sizes the servers' buffers. Where both must have a part in it, one that has none is
    /// enough to leave it to each of them.
    fn agree_sizing(&mut self, warnings: &mut Vec<String>) -> Sizing {
        let wish = self.spec.options.buffers.sizing;
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

    /// Settings, addresses, and the two transfer commands.
    async fn set_up(
        &mut self,
        agreed: &Agreed,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Again>, Failure> {
        let send = self.send_need(agreed);
        self.introduce().await?;
        let (settings, store) = split(self.destination.dialogue.plan(&self.receive_need(agreed)));
        let set = self.set_both(&send, settings, warnings).await?;
        let (None, Some(told)) = (&set.again, &set.told) else {
            return Ok(set.again);
        };
        let addresses = self.destination.data_addresses(told, warnings);
        let host = addresses.first();
        self.source.name_data_peer(host.ip()).await?;
        if agreed.sizing == Sizing::Drs && !self.connect_drs(host, warnings).await? {
            return Ok(Some(Again::Sizing));
        }
        self.begin(&send, &store, &addresses, warnings).await
    }

    /// The settings of both, and the destination's address: side by side where neither is known for
    /// anything but taking commands ahead; else the source's first, so that one that refuses costs the
    /// other nothing.
    async fn set_both(
        &mut self,
        send: &Need,
        receiving: Vec<Step>,
        warnings: &mut Vec<String>,
    ) -> Result<Set, Failure> {
        let (reading, writing) = self.doing();
        let sending = self.source.dialogue.settings(send);
        if self.both_take_ahead() {
            let mut more = Vec::new();
            let (source, destination) = tokio::join!(
                carry_out(self.source, sending, &reading, warnings),
                carry_out(self.destination, receiving, &writing, &mut more),
            );
            warnings.append(&mut more);
            let (source, destination) = (source?, destination?);
            return Ok(Set {
                again: source.again.or(destination.again),
                ..destination
            });
        }
        let source = carry_out(self.source, sending, &reading, warnings).await?;
        if source.again.is_some() {
            return Ok(source);
        }
        if send.sizing == Some(Sizing::Drs) && !takes_drs(self.source) {
            return Ok(Set {
                again: Some(Again::Sizing),
                told: None,
            });
        }
        carry_out(self.destination, receiving, &writing, warnings).await
    }

    /// Each server is told of the other: neither has data connections with hosts that it does not
    /// know of. A server connects from the address at which it is known here.
    async fn introduce(&mut self) -> Result<(), Failure> {
        let [from, to] = [&*self.source, &*self.destination].map(|s| s.control.peer().ip());
        let (source, destination) = tokio::join!(
            self.source.name_data_peer(to),
            self.destination.name_data_peer(from),
        );
        source.and(destination)
    }

    /// Requests to the source and to the destination, for messages.
    fn doing(&self) -> (String, String) {
        let (source, destination) = (self.source_path, self.destination_path);
        let reading = format!("read {}", shown(source));
        (reading, format!("write {}", shown(destination)))
    }

    /// Tells the source where the destination listens for the DRS channel; `false` when one of them
    /// takes no part in it after all.
    async fn connect_drs(
        &mut self,
        data: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let Some(told) = drs_of(self.destination).filter(|_| takes_drs(self.source)) else {
            return Ok(false);
        };
        // The source connects there only where its data goes.
        let at = SocketAddr::new(data.ip(), told.at.port());
        let channel = DrsAddress { at, ..told };
        self.source.tell_drs(channel, warnings).await
    }

    /// Tells the source where to send, and both to begin. The destination's command goes out when the
    /// source has taken the address: one that refuses leaves nothing behind. Connections that come
    /// before it wait in the listener's queue, which is known to be long enough where both servers are
    /// longhaul's; others hear their commands at the same time.
    async fn begin(
        &mut self,
        send: &Need,
        store: &[Step],
        addresses: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Again>, Failure> {
        let (reading, writing) = self.doing();
        let plan = self.source.dialogue.plan(send).into_iter();
        let steps: Vec<Step> = plan.filter(is_last).collect();
        let flights = match self.both_take_ahead() {
            true => vec![steps],
            false => steps.into_iter().map(|step| vec![step]).collect(),
        };
        for flight in flights {
            let flown = self
                .source
                .fly(&flight, Some(addresses), &reading, warnings);
            let again = flown.await?.again;
            if again.is_some() {
                return Ok(again_for(self.source, again, warnings));
            }
        }
        let begun = self.destination.fly(store, None, &writing, warnings).await;
        if begun.is_err() {
            // The source connects to where nobody listens any more.
            self.source.control.abandon();
        }
        begun.map(|_| None)
    }

    fn both_take_ahead(&self) -> bool {
        [&*self.source, &*self.destination]
            .iter()
            .all(|session| session.dialogue.takes_ahead())
    }

    fn receive_need(&self, agreed: &Agreed) -> Need {
        Need {
            direction: Direction::Receive,
            mode: agreed.mode,
            streams: StreamRange::fixed(1),
            congestion: None,
            buffer: self.spec.options.buffers.pinned_bytes(),
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
            buffer: self.spec.options.buffers.pinned_bytes(),
            sizing: Some(agreed.sizing),
            allocate: None,
            store_sum: None,
            restart: agreed.retrieval.restart.clone(),
            server_listens: false,
            reusable: false,
            verb: agreed.retrieval.verb.clone(),
        }
    }

    fn forget_channels(&mut self) {
        for session in [&mut *self.source, &mut *self.destination] {
            session.channel = None;
            session.dialogue.channel_lost();
        }
    }

    /// Bytes that are to be moved.
    fn missing(&self, agreed: &Agreed) -> Option<u64> {
        let size = self.spec.size?;
        Some(agreed.have.gaps(0, size).bytes())
    }

    /// Bytes moved: by the destination's last marker if it sent any, which must agree with what
    /// was to be moved.
    fn moved(&self, agreed: &Agreed, receiving: &str, marked: Option<u64>) -> Result<u64, Failure> {
        match (marked, self.missing(agreed)) {
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

/// The end of a plan: the transfer command by itself.
fn split(mut steps: Vec<Step>) -> (Vec<Step>, Vec<Step>) {
    let command = steps.split_off(steps.len().saturating_sub(1));
    (steps, command)
}

/// Whether the source hears this step only when the destination's address is known: it and what must follow it.
fn is_last(step: &Step) -> bool {
    matches!(
        step,
        Step::Connect | Step::Set(Command::Rest(_), _) | Step::Transfer(_)
    )
}

/// Whether a server takes part in right-sizing by a DRS channel, as far as it has been asked.
fn takes_drs(session: &Session) -> bool {
    session.dialogue.agreed(Sizing::Drs) == Sizing::Drs
}

/// Where a server that takes part in it listens for the DRS channel.
fn drs_of(session: &Session) -> Option<DrsAddress> {
    match session.dialogue.drs() {
        Some(DrsEnd::Listens(told)) if takes_drs(session) => Some(told),
        _ => None,
    }
}

/// Result of settings.
struct Set {
    again: Option<Again>,
    /// Where the server listens, if it was asked.
    told: Option<StripeAddresses>,
}

async fn carry_out(
    session: &mut Session,
    steps: Vec<Step>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<Set, Failure> {
    let mut told = None;
    for flight in session.dialogue.in_flights(steps) {
        let flown = session.fly(&flight, None, doing, warnings).await?;
        told = told.or(flown.told);
        let mut again = again_for(session, flown.again, warnings);
        if flight.contains(&Step::DrsListen) && drs_of(session).is_none() {
            again = again.or(Some(Again::Sizing));
        }
        if again.is_some() {
            return Ok(Set { again, told });
        }
    }
    Ok(Set { again: None, told })
}

fn again_for(
    session: &mut Session,
    refused: Option<Prepared>,
    warnings: &mut Vec<String>,
) -> Option<Again> {
    match refused? {
        Prepared::Ready { .. } => None,
        Prepared::StreamMode => {
            session.warn(warnings, choice::NO_EXTENDED);
            Some(Again::StreamMode)
        }
        Prepared::StartOver => Some(Again::StartOver),
        Prepared::Carefully => Some(Again::Carefully),
    }
}
