//! Directory listings over the data channel.

use std::sync::Arc;
use std::time::Duration;

use data::job::{Congestion, Control, IoMethod, Settings};
use data::recv::RecvPlan;
use data::store::memory::MemorySink;
use proto::client::{Direction, Need};
use proto::command::{Command, Mode, Type};
use proto::listing::{Kind, RemoteEntry, parse_ls, parse_mlsx};
use proto::streams::StreamRange;

use super::replies::{self, Cause, cause};
use super::{Session, check_path, shown};
use crate::transfer::exchange::{Exchange, Job};
use crate::transfer::prepare::{Ends, Prepared};
use crate::transfer::told::Told;
use crate::{Exit, Failure};

/// Largest listing taken, bytes: about two million entries.
const LIMIT: usize = 256 << 20;

/// What a listing command gave.
enum Listing {
    /// The lines, without line endings.
    Lines(Vec<Vec<u8>>),
    /// The server does not know the command.
    Unsupported,
}

impl Session {
    /// Entries of a directory without `.` and `..`: MLSD, else LIST, else NLST. The directory's
    /// text is bounded to 256 MiB.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for a path that FTP cannot express.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        check_path(path)?;
        if self.features().mlst {
            let command = Command::Mlsd(Some(path.to_vec()));
            if let Listing::Lines(lines) = self.fetch_lines(path, command).await? {
                return Ok(entries(&lines, parse_mlsx));
            }
        }
        self.list_plain(path).await
    }

    /// LIST and NLST without a path, inside the directory: servers read options, blanks and
    /// wildcards in a path differently.
    pub(super) async fn list_plain(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        if let Some(reply) = self.enter(path).await? {
            let doing = format!("list {}", shown(path));
            return Err(replies::refusal(self.name(), &doing, &reply));
        }
        // vsftpd hides names that start with a dot unless asked. A server that takes `-a` for a
        // name lists nothing or refuses; then the plain form speaks.
        for argument in [Some(b"-a".to_vec()), None] {
            let last = argument.is_none();
            match self.fetch_lines(path, Command::List(argument)).await {
                Ok(Listing::Lines(lines)) if last || !lines.is_empty() => {
                    let parsed = entries(&lines, parse_ls);
                    if parsed.is_empty() && lines.iter().any(|l| !is_total(l)) {
                        break;
                    }
                    return Ok(parsed);
                }
                Ok(Listing::Lines(_) | Listing::Unsupported) => {}
                Err(failure) if last || failure.exit == Exit::Unreachable => return Err(failure),
                Err(_) => {}
            }
        }
        self.list_names(path).await
    }

    /// Names alone; each is looked at on its own.
    async fn list_names(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        let Listing::Lines(lines) = self.fetch_lines(path, Command::Nlst(None)).await? else {
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
        let mut found = Vec::new();
        for line in lines {
            let name = line.rsplit(|b| *b == b'/').next().unwrap_or(&line).to_vec();
            if name.is_empty() || name == b"." || name == b".." {
                continue;
            }
            let mut full = path.to_vec();
            if !full.ends_with(b"/") {
                full.push(b'/');
            }
            full.extend_from_slice(&name);
            // Boxed: stat may itself look into a listing.
            match Box::pin(self.stat(&full)).await {
                Ok(entry) => found.push(entry),
                // Deleted meanwhile, or a dangling link.
                Err(failure) if failure.exit == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    async fn fetch_lines(&mut self, path: &[u8], command: Command) -> Result<Listing, Failure> {
        // MODE S whatever the session's transfers use: every server can.
        let need = Need {
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
        };
        let doing = format!("list {}", shown(path));
        let mut warnings = Vec::new();
        let prepared = self
            .prepare(&need, &Ends::default(), &doing, &mut warnings)
            .await?;
        let Prepared::Ready { alternative } = prepared else {
            return Ok(Listing::Unsupported);
        };
        let sink = MemorySink::new(LIMIT, "the listing");
        let job = Job::Receive {
            sink: Arc::new(sink.clone()),
            plan: RecvPlan {
                origin: 0,
                stream_start: 0,
                limit: Some(LIMIT as u64),
            },
            overruns: false,
        };
        let exchange = Exchange {
            job,
            settings: settings(self.control.patience()),
            control: &Arc::new(Control::new()),
            told: Told::default(),
            alternative,
            await_start: false,
            doing: &doing,
        };
        match self.exchange(exchange).await {
            Ok(_) => Ok(Listing::Lines(split_lines(&sink.take()))),
            Err(ended) => match ended.refusal {
                Some(reply) if replies::is_unsupported(&reply) => Ok(Listing::Unsupported),
                // Some servers refuse to list an empty directory by names.
                Some(reply) if reply.code == 550 && is_empty_nlst(&need.verb, &reply) => {
                    Ok(Listing::Lines(Vec::new()))
                }
                _ => Err(ended.failure),
            },
        }
    }
}

/// RFC 959 servers of old answer NLST of an empty directory with `550 No files found`.
fn is_empty_nlst(verb: &Command, reply: &proto::reply::Reply) -> bool {
    matches!(verb, Command::Nlst(_))
        && cause(reply) != Cause::Denied
        && reply.text().to_lowercase().contains("no files")
}

fn settings(patience: Duration) -> Settings {
    Settings {
        mode: Mode::Stream,
        type_: Type::Image,
        streams: 1,
        most_streams: 1,
        least_streams: 1,
        most_connections: 1,
        adapt: false,
        block: 64 << 10,
        io: IoMethod::Copy,
        sum: None,
        rate: None,
        stall: patience,
        connect: patience,
        send_buffer: None,
        receive_buffer: None,
        sizing: proto::sizing::Sizing::Kernel,
        drs: None,
        drs_interval: tune::sizing::drs::Interval::default(),
        congestion: Congestion::System,
        close_after: false,
    }
}

/// Lines without their endings: CR LF, LF, or CR CR LF (globus in TYPE A).
fn split_lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split(|b| *b == b'\n')
        .map(|line| {
            let end = line
                .iter()
                .rposition(|b| *b != b'\r')
                .map_or(0, |at| at + 1);
            line[..end].to_vec()
        })
        .filter(|line| !line.is_empty())
        .collect()
}

fn is_total(line: &[u8]) -> bool {
    line.starts_with(b"total ")
}

fn entries(lines: &[Vec<u8>], parse: impl Fn(&[u8]) -> Option<RemoteEntry>) -> Vec<RemoteEntry> {
    lines
        .iter()
        .filter_map(|line| parse(line))
        .filter(|e| !matches!(e.kind, Kind::CurrentDir | Kind::ParentDir))
        .filter(|e| e.name != b"." && e.name != b"..")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_of_all_servers() {
        let lines = split_lines(b"a\r\nb c\r\r\n\xffd\ne\r\n\r\n");
        assert_eq!(lines, [&b"a"[..], b"b c", b"\xffd", b"e"]);
    }
}
