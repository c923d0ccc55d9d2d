//! The verbs that copy: flags become options, events become lines.

use std::future::Future;
use std::sync::Arc;

use anyhow::Result;
use client::protection::WarningSink;
use client::{CopyEvent, CopyFailure, CopyObserver, CopySummary, Exit};

use crate::args::{CopyFlags, CpArgs, LogFormat, SyncArgs};
use crate::output::{self, OutputStyle, print_to_stderr};
use crate::{log_to_stderr, until_interrupted};

/// `longhaul cp`
pub(crate) fn cp(args: &CpArgs) -> Result<Exit> {
    let (sources, destination) = args.sources_and_destination();
    if args.flags.json && destination == "-" {
        print_to_stderr(
            "longhaul: --json and the destination - both need standard output; use only one of them",
        );
        return Ok(Exit::Usage);
    }
    run(
        &args.flags,
        |warn| args.options(warn),
        async |options, observer| match args.batch.pairs() {
            Some(pairs) => client::copy_pairs(&pairs, &options, observer).await,
            None => client::copy(sources, destination, &options, observer).await,
        },
    )
}

/// `longhaul sync`
pub(crate) fn sync(args: &SyncArgs) -> Result<Exit> {
    run(
        &args.flags,
        |warn| args.options(warn),
        async |options, observer| {
            client::sync(&args.source, &args.destination, &options, observer).await
        },
    )
}

/// Makes the options, carries out the verb, and prints its summary.
fn run<O, F: Future<Output = CopySummary>>(
    flags: &CopyFlags,
    options: impl FnOnce(WarningSink) -> Result<O, CopyFailure>,
    verb: impl FnOnce(O, Arc<dyn CopyObserver>) -> F,
) -> Result<Exit> {
    log_to_stderr(LogFormat::Text, "error");
    // --json wins over -q: a program needs the summary line.
    let style = match (flags.json, flags.quiet) {
        (true, _) => OutputStyle::Json,
        (false, true) => OutputStyle::Quiet,
        (false, false) => OutputStyle::Human,
    };
    let observer = output::observer_for(style);
    let warnings = Arc::clone(&observer);
    let warn = move |text: &str| warnings.on_event(CopyEvent::Warning(text.to_owned()));
    let options = match options(Arc::new(warn)) {
        Ok(options) => options,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {}", failure.message));
            return Ok(failure.exit);
        }
    };
    let Some(summary) = until_interrupted(verb(options, observer))? else {
        print_to_stderr("longhaul: interrupted; repeat the command with --resume to continue");
        return Ok(Exit::Interrupted);
    };
    output::print_summary(style, &summary, flags.why);
    Ok(summary.exit)
}
