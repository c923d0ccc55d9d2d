//! Directory listings over the data channel.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use data::job::{Control, Settings};
use data::options::{IoMethod, TransferOptions};
use data::recv::RecvPlan;
use proto::client::{Direction, Need};
use proto::command::{Command, Mode, Type};
use proto::listing::{Kind, RemoteEntry, parse_ls, parse_mlsx};
use proto::streams::StreamRange;
use tokio::sync::mpsc;
use tune::Prior;

use super::replies::{self, Cause, cause};
use super::{Session, shown};
use crate::answers::Visit;
use crate::transfer::exchange::{Exchange, LocalEnd};
use crate::transfer::prepare::{Ends, Prepared};
use crate::transfer::told::Told;
use crate::transfer::verdict::Ended;
use crate::{Exit, Failure};

mod entries;

use entries::{EntrySink, ListingBounds, Parse, Seen};

/// Of a listing that is kept in memory.
const KEPT: ListingBounds = ListingBounds {
    bytes: 512 << 20,
    lines: 2_000_000,
};

/// Of a listing whose entries go on as they come: more are no directory.
const PASSED_ON: ListingBounds = ListingBounds {
    bytes: 64 << 30,
    lines: 100_000_000,
};

/// Batches of entries on their way from the data connection to who takes them.
const BATCHES: usize = 4;

/// Result of a listing command.
enum Listing {
    /// It came whole; or whoever took the entries had enough.
    Came(Seen),
    /// The server does not know the command.
    Unsupported,
}

impl Session {
    /// Entries of a directory without `.` and `..`: MLSD, else LIST, else NLST. At most two million
    /// and 512 MiB of text.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for a path that FTP cannot express; `Protocol` for a
    /// listing beyond the bounds.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        self.list_with(path, KEPT, &mut visit).await?;
        Ok(found)
    }

    /// [`Session::list`], entry by entry as they come, in bounded memory.
    ///
    /// # Errors
    /// As [`Session::list`]; entries may have been visited before.
    pub(crate) async fn list_each(
        &mut self,
        path: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        self.list_with(path, PASSED_ON, visit).await
    }

    async fn list_with(
        &mut self,
        path: &[u8],
        bounds: ListingBounds,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        self.check_path(path)?;
        if self.features().mlst {
            let command = Command::Mlsd(Some(path.to_vec()));
            let fetch = Fetch {
                path,
                command,
                parse: parse_mlsx,
                bounds,
            };
            if let Listing::Came(_) = self.fetch(fetch, visit).await? {
                return Ok(());
            }
        }
        self.list_plain(path, bounds, visit).await
    }

    /// Entries as LIST tells them, else NLST, whatever the server has besides; bounds as for
    /// [`Session::list`].
    pub(super) async fn list_long(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        self.list_plain(path, KEPT, &mut visit).await?;
        Ok(found)
    }

    /// LIST and NLST without a path, inside the directory: servers read options, blanks and
    /// wildcards in a path differently.
    async fn list_plain(
        &mut self,
        path: &[u8],
        bounds: ListingBounds,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        if let Some(reply) = self.enter(path).await? {
            let doing = format!("list {}", shown(path));
            return Err(replies::refusal(self.name(), &doing, &reply));
        }
        // vsftpd hides names that start with a dot unless asked. A server that takes `-a` for a
        // name lists nothing or refuses; then the plain form speaks.
        for argument in [Some(b"-a".to_vec()), None] {
            let last = argument.is_none();
            let mut visited = false;
            let mut noting = |entry| {
                visited = true;
                visit(entry)
            };
            let fetch = Fetch {
                path,
                command: Command::List(argument),
                parse: parse_ls,
                bounds,
            };
            match self.fetch(fetch, &mut noting).await {
                Ok(Listing::Came(seen)) if last || seen.lines > 0 => {
                    if seen.entries == 0 && seen.strange > 0 {
                        break;
                    }
                    return Ok(());
                }
                Ok(Listing::Came(_) | Listing::Unsupported) => {}
                Err(failure) if last || visited || failure.exit == Exit::Unreachable => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        self.list_names(path, visit).await
    }

    /// Names alone; each is looked at on its own.
    async fn list_names(&mut self, path: &[u8], visit: &mut Visit<'_>) -> Result<(), Failure> {
        let mut names = Vec::new();
        let mut keep = |entry: RemoteEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        let fetch = Fetch {
            path,
            command: Command::Nlst(None),
            parse: name_alone,
            bounds: KEPT,
        };
        let Listing::Came(_) = self.fetch(fetch, &mut keep).await? else {
            return Err(Failure {
                exit: Exit::Protocol,
                message: format!(
                    "{} can list no directory in a form that is understood (MLSD, LIST, NLST); \
                     name the files one by one",
                    self.name()
                ),
                transient: false,
            });
        };
        for name in names {
            let mut full = path.to_vec();
            if !full.ends_with(b"/") {
                full.push(b'/');
            }
            full.extend_from_slice(&name);
            // Boxed: stat may itself look into a listing.
            match Box::pin(self.stat(&full)).await {
                Ok(entry) => {
                    if visit(entry).is_break() {
                        return Ok(());
                    }
                }
                // Deleted meanwhile, or a dangling link.
                Err(failure) if failure.exit == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn fetch(&mut self, fetch: Fetch<'_>, visit: &mut Visit<'_>) -> Result<Listing, Failure> {
        let need = need(fetch.command);
        let doing = format!("list {}", shown(fetch.path));
        let mut warnings = Vec::new();
        let prepared = self
            .prepare(&need, &Ends::default(), &doing, &mut warnings)
            .await?;
        let Prepared::Ready { alternative } = prepared else {
            return Ok(Listing::Unsupported);
        };
        let (sender, batches) = mpsc::channel(BATCHES);
        let sink = Arc::new(EntrySink::new(fetch.parse, fetch.bounds, sender));
        let exchange = Exchange {
            local_end: LocalEnd::Receive {
                sink: Arc::clone(&sink) as Arc<_>,
                plan: RecvPlan {
                    origin: 0,
                    stream_start: 0,
                    limit: None,
                },
                overruns: false,
            },
            settings: settings(self.control.patience()),
            control: &Arc::new(Control::new()),
            told: Told::default(),
            alternative,
            await_start: false,
            doing: &doing,
        };
        let (came, enough) = self.take_entries(exchange, batches, &sink, visit).await;
        match came {
            Ok(seen) => Ok(Listing::Came(seen)),
            Err(_) if enough => Ok(Listing::Came(Seen::default())),
            Err(ended) => match (sink.excess(), ended.refusal) {
                (Some(excess), _) => Err(Failure::new(
                    Exit::Protocol,
                    format!(
                        "{}: its listing of {} has {excess}",
                        self.name(),
                        shown(fetch.path)
                    ),
                )),
                (_, Some(reply)) if replies::is_unsupported(&reply) => Ok(Listing::Unsupported),
                // Some servers refuse to list an empty directory by names.
                (_, Some(reply)) if reply.code == 550 && is_empty_nlst(&need.verb, &reply) => {
                    Ok(Listing::Came(Seen::default()))
                }
                _ => Err(ended.failure),
            },
        }
    }

    /// Visits entries while they come; whether the visitor had enough.
    async fn take_entries(
        &mut self,
        exchange: Exchange<'_>,
        mut batches: mpsc::Receiver<Vec<RemoteEntry>>,
        sink: &EntrySink,
        visit: &mut Visit<'_>,
    ) -> (Result<Seen, Ended>, bool) {
        let mut enough = false;
        let mut take = |batch: Vec<RemoteEntry>| {
            let mut entries = batch.into_iter();
            enough = enough || entries.any(|entry| visit(entry).is_break());
            enough
        };
        let mut exchange = Box::pin(self.exchange(exchange));
        let done = loop {
            tokio::select! {
                biased;
                Some(batch) = batches.recv() => {
                    if take(batch) {
                        batches.close();
                    }
                }
                done = &mut exchange => break done,
            }
        };
        let done = done.map(|_| {
            while let Ok(batch) = batches.try_recv() {
                take(batch);
            }
            let (rest, seen) = sink.end();
            take(rest);
            seen
        });
        (done, enough)
    }
}

/// A listing command and how its answer is read.
struct Fetch<'a> {
    path: &'a [u8],
    command: Command,
    parse: Parse,
    bounds: ListingBounds,
}

/// MODE S whatever the session's transfers use: every server can.
fn need(command: Command) -> Need {
    Need {
        direction: Direction::Send,
        mode: Mode::Stream,
        streams: StreamRange::fixed(1),
        congestion: None,
        buffer: None,
        sizing: None,
        allocate: None,
        store_sum: None,
        restart: None,
        server_listens: true,
        reusable: false,
        verb: command,
    }
}

/// A line of NLST: a name, with or without the directory's path.
fn name_alone(line: &[u8]) -> Option<RemoteEntry> {
    let name = line.rsplit(|b| *b == b'/').next().unwrap_or(line);
    (!name.is_empty()).then(|| RemoteEntry::new(name, Kind::File))
}

/// RFC 959 servers of old answer NLST of an empty directory with `550 No files found`.
fn is_empty_nlst(verb: &Command, reply: &proto::reply::Reply) -> bool {
    matches!(verb, Command::Nlst(_))
        && cause(reply) != Cause::Denied
        && reply.text().to_lowercase().contains("no files")
}

fn settings(patience: Duration) -> Settings {
    Settings {
        options: TransferOptions {
            io: IoMethod::Copy,
            block: 64 << 10,
            stall: patience,
            ..TransferOptions::default()
        },
        mode: Mode::Stream,
        type_: Type::Image,
        streams: 1,
        most_streams: 1,
        least_streams: 1,
        most_connections: 1,
        adapt: false,
        prior: Prior::default(),
        sum: None,
        connect: patience,
        drs: None,
        close_after: false,
    }
}
