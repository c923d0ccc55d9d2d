//! Flags of the lab as requests to its libraries.

use std::env;
use std::path::PathBuf;

use command_line::flags::lab::{NetArgs, RunArgs};
use command_line::flags::lab_sim::SimArgs;
use command_line::programs::find;
use emulator::topology::{NetworkOptions, Topology};
use lab::LabError;
use lab::experiment::{Mode, RunRequest};

/// The network that the flags and the topology file describe.
pub(crate) fn topology(args: &NetArgs) -> Result<Topology, LabError> {
    let options = NetworkOptions {
        rtt: args.rtt.clone(),
        rate: args.rate.clone(),
        loss: args.loss.clone(),
        queue: args.queue.clone(),
        trace: args.trace.clone(),
        routers: args.routers.clone(),
        bottleneck_link: args.bottleneck_link.clone(),
        sysctls: args.sysctls.clone(),
        cc: args.cc.clone(),
        seed: args.seed,
        offload: args.no_offload.then_some(false),
    };
    Topology::from_options(args.topology.as_deref(), &options)
}

/// Whether the user asked for every experiment.
pub(crate) fn is_all(args: &RunArgs) -> bool {
    args.name == "all"
}

/// The arguments as a request to the library.
///
/// # Errors
/// [`LabError::Usage`]: an option that is not valid with `all`, or only with `all`.
pub(crate) fn run_request(args: &RunArgs) -> Result<RunRequest, LabError> {
    let refused = |what: &str| Err(LabError::Usage(what.to_owned()));
    // Experiments have different axes and programs, so these options cannot apply to all of
    // them.
    if is_all(args) && !(args.only.is_empty() && args.programs.is_empty()) {
        return refused("--only and --program are for one experiment, not for `all`");
    }
    if !is_all(args) && args.budget.is_some() {
        return refused("--budget is for `lab run all`; one experiment has --repetitions");
    }
    let mode = if args.full { Mode::Full } else { Mode::Quick };
    Ok(RunRequest {
        repetitions: args.repetitions,
        seed: args.seed,
        only: args.only.clone(),
        programs: args.programs.clone(),
        resume: args.resume,
        fresh: args.fresh,
        wait: args.wait,
        wait_quiet: args.wait_quiet,
        longhaul: longhaul_under_test()?,
        ..RunRequest::new(&args.name, mode, &args.out)
    })
}

/// The `longhaul` that experiments measure: that of `LONGHAUL_BIN`, else the one beside this program, else that of `PATH`.
fn longhaul_under_test() -> Result<PathBuf, LabError> {
    let found = match env::var_os("LONGHAUL_BIN") {
        Some(path) => std::path::absolute(path).ok(),
        None => find("longhaul"),
    };
    found.ok_or_else(|| {
        LabError::NotFound(
            "there is no longhaul to measure, neither beside longhaul-lab nor on PATH; LONGHAUL_BIN may name one".into(),
        )
    })
}

/// The options that were given, by their names without dashes; a flag has an empty value.
pub(crate) fn simulation_options(args: &SimArgs) -> Vec<(String, String)> {
    let initial_window = args.initial_window.map(|segments| segments.to_string());
    let seed = args.seed.map(|seed| seed.to_string());
    let sessions = args.sessions.map(|sessions| sessions.to_string());
    let delayed_ack = args.delayed_ack.then(String::new);
    let options = [
        ("flows", &args.flows),
        ("rate", &args.rate),
        ("delay", &args.delay),
        ("rtt", &args.rtt),
        ("access-delay", &args.access_delay),
        ("access-rate", &args.access_rate),
        ("access", &args.access),
        ("queue", &args.queue),
        ("loss", &args.loss),
        ("window", &args.window),
        ("receiver", &args.receiver),
        ("cc", &args.cc),
        ("sender", &args.sender),
        ("initial-window", &initial_window),
        ("delayed-ack", &delayed_ack),
        ("packet", &args.packet),
        ("time", &args.time),
        ("warm-up", &args.warm_up),
        ("bytes", &args.bytes),
        ("sessions", &sessions),
        ("stagger", &args.stagger),
        ("cross-traffic", &args.cross_traffic),
        ("autopar", &args.autopar),
        ("jitter", &args.jitter),
        ("seed", &seed),
    ];
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)));
    given
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
