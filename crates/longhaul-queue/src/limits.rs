//! `limit`: bounds of endpoints.

use command_line::flags::queue::QueueLimitArgs;
use command_line::flags::values::parse_positive_rate;
use command_line::output::{print_json, print_listing_line};
use queue::copy::is_name;
use queue::decisions::fleet::{DayHours, EVERY_ENDPOINT, EndpointLimit};
use queue::http::report;
use queue::store::LimitChange;
use units::{Exit, show};

use crate::asking::{QueueFailure, ask};

pub(crate) fn run(args: &QueueLimitArgs) -> Result<Exit, QueueFailure> {
    let change = match &args.endpoint {
        Some(endpoint) => Some(change(args, endpoint)?),
        None => None,
    };
    ask(&args.database, async |queue| {
        if let Some((endpoint, change)) = &change {
            queue.set_limit(endpoint, change).await?;
            return Ok(Exit::Done);
        }
        for limit in queue.fleet().await?.limits {
            let printed = match args.json {
                true => print_json(&report::limit(&limit)),
                false => print_listing_line(line(&limit).as_bytes()),
            };
            printed.map_err(QueueFailure::Output)?;
        }
        Ok(Exit::Done)
    })
}

fn change(args: &QueueLimitArgs, endpoint: &str) -> Result<(String, LimitChange), QueueFailure> {
    let usage = |text: String| QueueFailure::Usage(text);
    // The brackets of an IPv6 address belong to URLs.
    let name = endpoint.trim_matches(['[', ']']).to_ascii_lowercase();
    let is_every = name == EVERY_ENDPOINT;
    if !is_every && !is_name(&name.replace(':', "-")) {
        return Err(usage(format!("'{endpoint}' is not the name of a host")));
    }
    let sessions = setting(args.sessions.as_deref(), |text| {
        let most: Option<u32> = text.parse().ok();
        most.ok_or_else(|| usage(format!("--sessions {text} is no number")))
    })?;
    if is_every && (sessions == Some(Some(0)) || args.hours.is_some()) {
        return Err(usage(
            "* takes --sessions from 1 on, and no --hours: close each host by its name".to_owned(),
        ));
    }
    let rate = setting(args.rate.as_deref(), |text| {
        let rate = parse_positive_rate(text);
        rate.map(units::Rate::as_bits_per_second)
            .map_err(|error| usage(format!("--rate {text}: {error}")))
    })?;
    let hours = setting(args.hours.as_deref(), |text| {
        let hours = DayHours::parse(text);
        hours.ok_or_else(|| usage(format!("--hours {text}: use HH:MM-HH:MM")))
    })?;
    let change = LimitChange {
        sessions,
        rate,
        hours,
        zone: args.time_zone.clone(),
    };
    Ok((name, change))
}

/// A value, `off`, or nothing.
fn setting<T>(
    text: Option<&str>,
    parse: impl FnOnce(&str) -> Result<T, QueueFailure>,
) -> Result<Option<Option<T>>, QueueFailure> {
    match text {
        None => Ok(None),
        Some("off") => Ok(Some(None)),
        Some(text) => parse(text).map(|value| Some(Some(value))),
    }
}

fn line(limit: &EndpointLimit) -> String {
    let mut line = limit.endpoint.clone();
    if let Some(sessions) = limit.sessions {
        line += &format!("  sessions {sessions}");
    }
    if let Some(rate) = limit.rate {
        line += &format!("  rate {}", show::bits(rate));
    }
    if let Some(hours) = limit.hours {
        line += &format!("  hours {hours} {}", limit.zone);
    }
    line
}
