//! `longhaul advisor enforce`: advice as metrics of host routes, for programs that nobody can change.

use advisor::config::state_directory;
use advisor::enforce::{Enforcement, Enforcer, IpCommand, RouteMetrics};
use enable::advice::Question;
use enable::client::EnableClient;
use enable::method;
use serde_json::Value;
use std::net::IpAddr;

use super::asking::{AskingFailure, client_of};
use super::get::is_known;
use command_line::flags::advisor::AdvisorEnforceArgs;
use command_line::output::{print_line, print_to_stderr, unless_reader_gone};

/// Name of the record of the routes in the state directory.
const RECORD: &str = "enforced-routes.json";

pub(crate) fn run(args: &AdvisorEnforceArgs) -> Result<(), AskingFailure> {
    let record = args.state.clone();
    let record = record.unwrap_or_else(|| state_directory().join(RECORD));
    if let (Some(directory), false) = (record.parent(), args.dry_run) {
        std::fs::create_dir_all(directory)?;
    }
    let enforcer = Enforcer::new(IpCommand::default(), &record, args.dry_run);
    if args.undo {
        for command in enforcer.undo().map_err(enforcing)? {
            unless_reader_gone(print_line(&command))?;
        }
        return Ok(());
    }
    let server = client_of(&args.server)?;
    let clients = match args.clients.is_empty() {
        true => monitored(&server)?,
        false => args.clients.clone(),
    };
    for client in clients {
        enforce(&enforcer, &server, client)?;
    }
    Ok(())
}

/// Sets the metrics for one client, and prints the commands.
fn enforce(
    enforcer: &Enforcer,
    server: &EnableClient,
    client: IpAddr,
) -> Result<(), AskingFailure> {
    let advice = server.advice(&Question {
        client: Some(client.to_string()),
        ..Question::default()
    })?;
    if !is_known(&advice) {
        print_to_stderr(&format!("{client}: {}", advice.why));
        return Ok(());
    }
    match enforcer
        .apply(client, &RouteMetrics::from_advice(&advice))
        .map_err(enforcing)?
    {
        Enforcement::Changed(commands) => {
            for command in commands {
                unless_reader_gone(print_line(&command))?;
            }
        }
        Enforcement::Unchanged => {}
        Enforcement::Refused(reason) => print_to_stderr(&format!("{client}: {reason}")),
    }
    Ok(())
}

fn enforcing(error: impl std::fmt::Display) -> AskingFailure {
    AskingFailure::Enforce(error.to_string())
}

/// The clients that the server monitors.
fn monitored(server: &EnableClient) -> Result<Vec<IpAddr>, AskingFailure> {
    let answer = server.call(&method::LIST_HOSTS, Vec::new())?;
    let hosts = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let address = |host: &Value| {
        let named = host.get("client").unwrap_or(host);
        named.as_str()?.parse().ok()
    };
    Ok(hosts.iter().filter_map(address).collect())
}
