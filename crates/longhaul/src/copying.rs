//! The verbs that copy: flags become options, events become lines.

use std::future::{Future, pending};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use command_line::log::{LogFormat, log_to_stderr};
use copy::{
    CopiedPlaces, CopyEvent, CopyNodes, CopyObserver, CopyOptions, CopySummary, Exit, Failure,
    FailureKind,
};
use data::rate::RateLimit;
use ftp::location::Location;
use ftp::protection::WarningSink;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{CopyFlags, CpArgs, SyncArgs};
use crate::nodes::{self, NodeRole};
use crate::output::Continuation;
use crate::output::console::Console;
use crate::output::copy_output::{CopyOutput, CopyReporting, OutputStyle};
use crate::output::{events_log, json, print_to_stderr};
use crate::receipt::ReceiptToSign;
use crate::slurm_step::LedStep;
use crate::terminal::ask_before;

/// `longhaul cp`
pub(crate) fn cp(args: &CpArgs) -> Result<Exit> {
    let (sources, destination) = args.sources_and_destination();
    if args.flags.json && destination == "-" {
        print_to_stderr(
            "longhaul: --json and the destination - both need standard output; use only one of them",
        );
        return Ok(Exit::Usage);
    }
    let (nodes, step) = match role_of(&args.flags) {
        Ok(role) => role,
        Err(exit) => return exit,
    };
    let pairs = args.batch.pairs();
    let places = match &pairs {
        Some(pairs) => CopiedPlaces::Pairs(pairs),
        None => CopiedPlaces::Copy(sources, destination),
    };
    run(
        (&args.flags, args.plan || args.flags.dry_run),
        places,
        |warn| {
            let options = args.options(warn)?;
            Ok(options.with(|options| share_with(options, nodes, step.as_ref())))
        },
        |options| options,
        async |options, observer| match &pairs {
            Some(pairs) => copy::copy_pairs(pairs, &options, observer).await,
            None => copy::copy(sources, destination, &options, observer).await,
        },
    )
}

/// The nodes that a copy uses, and the step whose tasks they are. `Err`: this process was one of them, or cannot be.
fn role_of(flags: &CopyFlags) -> Result<(CopyNodes, Option<LedStep>), Result<Exit>> {
    let report = |failure: Failure| {
        print_to_stderr(&format!("longhaul: {failure}"));
        if flags.json {
            json::print_summary(&CopySummary::of_failure(&failure));
        }
        Err(Ok(failure.exit()))
    };
    match NodeRole::of(flags) {
        Ok(NodeRole::Plan(nodes, step)) => Ok((nodes, step)),
        Ok(NodeRole::Node(step)) => Err(nodes::serve_in_step(&step)),
        Ok(NodeRole::Late) => Err(Ok(Exit::Done)),
        Err(failure) => report(failure),
    }
}

/// Lets nodes take part in a copy, which are the tasks of `step` if there is one.
fn share_with(options: &mut CopyOptions, nodes: CopyNodes, step: Option<&LedStep>) {
    options.nodes = nodes;
    if step.is_some_and(LedStep::has_taken_over) {
        // The file system may hold the locks of a lost task for a while. A task that only stood still ends its copy first.
        options.file.wait = true;
        // All that is there is of this copy.
        (options.file.resume, options.file.restart) = (true, false);
    }
}

/// `longhaul sync`
pub(crate) fn sync(args: &SyncArgs) -> Result<Exit> {
    let (nodes, step) = match role_of(&args.flags) {
        Ok(role) => role,
        Err(exit) => return exit,
    };
    run(
        (&args.flags, args.flags.dry_run),
        CopiedPlaces::Sync(&args.source, &args.destination),
        |warn| {
            let mut options = args.options(warn)?;
            share_with(&mut options.copy, nodes, step.as_ref());
            Ok(options)
        },
        |options| &options.copy,
        async |options, observer| {
            copy::sync(&args.source, &args.destination, &options, observer).await
        },
    )
}

/// Makes the options, asks for passwords that `places` lack, carries out the verb, and prints its summary, also if it
/// fails or is interrupted.
fn run<O, F: Future<Output = CopySummary>>(
    (flags, is_dry_run): (&CopyFlags, bool),
    places: CopiedPlaces<'_>,
    options: impl FnOnce(WarningSink) -> Result<O, Failure>,
    copy_options: impl FnOnce(&O) -> &CopyOptions,
    verb: impl FnOnce(O, Arc<dyn CopyObserver>) -> F,
) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Only control connections run here; each data stream has its own thread.
        .worker_threads(2)
        .enable_all()
        .build()?;
    // First: by default these signals would end the process.
    let signals = UserSignals::catch(&runtime)?;
    let report = &flags.report;
    let in_way = report.log.as_deref();
    let in_way = in_way.map(|log| copy::check_log_file(log, places));
    if let Some(Err(failure)) = in_way {
        print_to_stderr(&format!("longhaul: {failure}"));
        if flags.json {
            json::print_summary(&CopySummary::of_failure(&failure));
        }
        return Ok(failure.exit());
    }
    let console = match Console::with_log(report.log.as_deref()) {
        Ok(console) => Arc::new(console),
        Err(error) => {
            let log = report.log.as_deref().unwrap_or_else(|| "".as_ref());
            print_to_stderr(&format!(
                "longhaul: cannot write {}: {error}",
                log.display()
            ));
            return Ok(Exit::Local);
        }
    };
    // RUST_LOG asks for other lines, in its own form.
    match report.is_verbose() && std::env::var_os("RUST_LOG").is_none() {
        true => events_log::print_on(Arc::clone(&console), report.shows_dialogue()),
        false => log_to_stderr(LogFormat::Text, "error"),
    }
    // --json wins over -q: a program needs the summary line.
    let style = match (flags.json, flags.quiet) {
        (true, _) => OutputStyle::Json,
        (false, true) => OutputStyle::Quiet,
        (false, false) => OutputStyle::Human,
    };
    let reporting = CopyReporting {
        style,
        is_dry_run,
        is_verbose: report.is_verbose(),
        continues: match places {
            CopiedPlaces::Copy(_, "-") => Continuation::Impossible,
            _ if flags.reliability.restart => Continuation::WithoutRestart,
            _ => Continuation::Repeated,
        },
        stats: report.stats,
    };
    let output = Arc::new(CopyOutput::new(reporting, Arc::clone(&console)));
    let refused = |failure: &Failure| {
        console.print(&format!("longhaul: {failure}"));
        output.print_summary(&CopySummary::of_failure(failure), false);
        failure.exit()
    };
    let observer: Arc<dyn CopyObserver> = output.clone();
    let warnings = Arc::clone(&observer);
    let warn = move |text: &str| warnings.on_event(CopyEvent::Warning(text.to_owned()));
    let options = match options(Arc::new(warn)) {
        Ok(options) => options,
        Err(failure) => return Ok(refused(&failure)),
    };
    let copy = copy_options(&options);
    let interrupt = copy.interrupt.clone();
    let places = arguments(places);
    let places = places.iter().map(String::as_str);
    let receipt = ReceiptToSign::of(&flags.keep);
    let refusal = places.clone().find_map(not_of_scp);
    let keyed = receipt.as_ref().map_or(Ok(()), ReceiptToSign::check_key);
    if let Err(failure) = refusal.map_or(keyed, Err) {
        return Ok(refused(&failure));
    }
    for place in places.clone() {
        if let Some(name) = copy.security.remotes().unknown_name_in(place)
            && !Path::new(place).exists()
        {
            let text = format!(
                "{place} is a path of this machine: the configuration has no remote {name}"
            );
            observer.on_event(CopyEvent::Warning(text));
        }
    }
    if ask_before(places, &copy.security)?.is_none() {
        let failure = Failure::new(FailureKind::Interrupted, "interrupted; nothing was copied");
        return Ok(refused(&failure));
    }
    let rate = copy.streams.transfer.rate.clone();
    let answering = runtime.spawn(signals.answer(Arc::clone(&output), rate));
    let copying = async {
        // Not before signals are watched for: what is shown is also removed.
        output.begin();
        verb(options, observer).await
    };
    let summary = run_to_end(runtime, copying, || interrupt.trigger())?;
    answering.abort();
    output.print_summary(&summary, flags.why);
    Ok(exit_of(&summary, receipt.as_ref()))
}

/// `USER@HOST:PATH` is a place for scp(1), and here a path of this machine. A copy to it would seem to be on the host, so one that
/// does not exist is refused.
fn not_of_scp(place: &str) -> Option<Failure> {
    let (login, path) = place.split_once(':')?;
    let (user, host) = login.split_once('@')?;
    let is_path = user.is_empty() || host.is_empty() || login.contains('/');
    if is_path || Path::new(place).exists() {
        return None;
    }
    let home = if path.starts_with('/') { "" } else { "/~/" };
    let path = Location::url_name(path.strip_prefix("~/").unwrap_or(path).as_bytes());
    let failure = Failure::usage(format!("{place} would be a file of this machine"));
    Some(failure.advise(format!(
        "for a host write ssh://{login}{home}{path}, for the file ./{place}"
    )))
}

/// The exit code of a copy, after its receipt is signed.
fn exit_of(summary: &CopySummary, receipt: Option<&ReceiptToSign<'_>>) -> Exit {
    match receipt.map_or(Ok(()), ReceiptToSign::sign) {
        Ok(()) => summary.exit,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {failure}"));
            match summary.exit {
                Exit::Done => failure.exit(),
                exit => exit,
            }
        }
    }
}

/// The signals by which a user asks a running copy for something.
struct UserSignals {
    /// SIGUSR1: a line about the progress, as dd(1) prints it.
    progress: Signal,
    /// SIGUSR2: the rate limit is suspended, or put in force again.
    rate: Signal,
}

impl UserSignals {
    fn catch(runtime: &Runtime) -> io::Result<Self> {
        let _context = runtime.enter();
        Ok(Self {
            progress: signal(SignalKind::user_defined1())?,
            rate: signal(SignalKind::user_defined2())?,
        })
    }

    /// Does what the signals ask for. Without a limit there is nothing to suspend.
    async fn answer(mut self, output: Arc<CopyOutput>, limit: Option<RateLimit>) {
        loop {
            tokio::select! {
                Some(()) = self.progress.recv() => output.print_progress(),
                Some(()) = self.rate.recv() => {
                    if let Some(limit) = &limit {
                        let is_suspended = limit.toggle_suspension();
                        output.rate_limit_changed((!is_suspended).then(|| limit.rate()));
                    }
                }
                else => return,
            }
        }
    }
}

/// The arguments that name servers.
fn arguments(places: CopiedPlaces<'_>) -> Vec<String> {
    match places {
        CopiedPlaces::Copy(sources, destination) => {
            let destination = [destination.to_owned()];
            sources.iter().cloned().chain(destination).collect()
        }
        CopiedPlaces::Sync(from, to) => vec![from.to_owned(), to.to_owned()],
        CopiedPlaces::Pairs(pairs) => pairs.servers().into_iter().collect(),
    }
}

/// Runs a copy to its end. At SIGINT, SIGTERM, or SIGHUP, unless nohup(1) has that ignored, `end_early` makes it end soon.
fn run_to_end<T>(
    runtime: Runtime,
    copy: impl Future<Output = T>,
    end_early: impl FnOnce(),
) -> Result<T> {
    let outcome = runtime.block_on(async {
        // Installed before the copy runs, so that an early signal is not lost.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hang_up = SignalKind::hangup();
        let mut hang_up = match data::os::signals::is_ignored(hang_up.as_raw_value())? {
            true => None,
            false => Some(signal(hang_up)?),
        };
        let hung_up = async {
            match &mut hang_up {
                Some(signal) => signal.recv().await,
                None => pending().await,
            }
        };
        tokio::pin!(copy);
        tokio::select! {
            value = &mut copy => return Ok(value),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
        end_early();
        Ok::<_, io::Error>(copy.await)
    })?;
    // Tasks of an interrupted copy end here, before the summary: nothing is printed behind it. Stream threads end by
    // themselves; 1 s limits the wait for them.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_scp_is_refused_with_its_url() {
        for (place, url) in [
            ("ann@host:", "ssh://ann@host/~/,"),
            ("ann@host:a b", "ssh://ann@host/~/a%20b,"),
            ("ann@host:~/a", "ssh://ann@host/~/a,"),
            ("ann@host:/a", "ssh://ann@host/a,"),
        ] {
            let refusal = not_of_scp(place).map(|failure| failure.to_string());
            assert!(
                refusal.as_ref().is_some_and(|text| text.contains(url)),
                "{refusal:?}"
            );
        }
        for place in [
            "ftp://ann@host/a:b",
            "host:a",
            "./ann@host:a",
            "a:b@c",
            "@host:a",
            "ann@host",
        ] {
            assert!(not_of_scp(place).is_none(), "{place}");
        }
    }
}
