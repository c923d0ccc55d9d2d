//! `longhaul advisor get`: advice as text, JSON, or the flags of a program.

use std::collections::BTreeSet;
use std::time::Duration;

use enable::advice::{Advice, DataDirection};
use enable::client::EnableClient;
use enable::emit::Program;
use proto::printable::printable;
use proto::printable::shell_word;
use serde_json::{Value, json};
use tune::sizing::advice::PathSpec;
use units::show;

use super::asking::{AskingFailure, question};
use command_line::flags::advisor::AdvisorGetArgs;
use command_line::output::{print_json, print_line, print_to_stderr};

pub(crate) fn run(args: &AdvisorGetArgs) -> Result<(), AskingFailure> {
    let client = EnableClient::new(&args.host, args.wait.timeout)?;
    let direction = match args.upload {
        true => DataDirection::Upload,
        false => DataDirection::Download,
    };
    let question = question(args.client.clone(), args.bytes, direction);
    let question = match args.emit {
        Some(program) => program.question(question),
        None => question,
    };
    let advice = client.advice(&question)?;
    if args.json {
        return Ok(print_json(&json!(advice))?);
    }
    if let Some(program) = args.emit {
        return print_flags(program, &advice);
    }
    let mut lines = describe(&advice, direction);
    if args.explain {
        lines.extend(intervals(&client.net_info(args.client.as_deref())?));
        lines.extend(explain(&advice));
    }
    for line in lines {
        print_line(&printable(&line).to_string())?;
    }
    Ok(())
}

/// Whether the server knows anything of the path. Otherwise `why` says what it does about it.
pub(crate) fn is_known(advice: &Advice) -> bool {
    advice.confidence > 0.0 || advice.rtt_seconds.is_some() || advice.bandwidth_bps.is_some()
}

/// Prints the flags on one line for a shell, and the reason of an empty line on standard error.
fn print_flags(program: Program, advice: &Advice) -> Result<(), AskingFailure> {
    let words: Vec<String> = program
        .flags(advice)
        .iter()
        .map(|word| shell_word(word))
        .collect();
    if words.is_empty() {
        let reason = if is_known(advice) {
            "the advice needs no flags: "
        } else {
            ""
        };
        print_to_stderr(&format!("longhaul advisor: {reason}{}", advice.why));
    }
    Ok(print_line(&words.join(" "))?)
}

/// The advice as a person reads it, line by line.
fn describe(advice: &Advice, direction: DataDirection) -> Vec<String> {
    if !is_known(advice) {
        return vec![advice.why.clone()];
    }
    let way = match direction {
        DataDirection::Download => "to",
        DataDirection::Upload => "from",
    };
    let mut lines = vec![format!("advice for transfers {way} {}", advice.client)];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("  {name:<20}{value}"));
        }
    };
    add("buffer", Some(buffer_text(advice)));
    add("streams", advice.streams.map(|n| n.to_string()));
    add("congestion control", advice.congestion_control.clone());
    add("pace", advice.pace_bps.map(show::bits));
    add(
        "expected rate",
        advice.expected_bps.map(|bps| rate_text(bps, advice)),
    );
    add("limited by", advice.limited_by.clone());
    add("round trip", advice.rtt_seconds.and_then(time_text));
    add("bottleneck", advice.bandwidth_bps.map(show::bits));
    add(
        "loss",
        advice.loss.map(|loss| format!("{:.3} %", loss * 100.0)),
    );
    add("path", directions_text(advice));
    add("confidence", Some(confidence_text(advice)));
    add("why", Some(advice.why.clone()));
    lines
}

/// The tests of the path that run at intervals, and why at these, line by line. An earlier server does not tell.
fn intervals(info: &Value) -> Vec<String> {
    let Some(tests) = info.get("intervals").and_then(Value::as_object) else {
        return Vec::new();
    };
    let mut lines = vec!["tests of this path".to_owned()];
    let told = tests
        .iter()
        .filter_map(|(test, why)| Some((test, why.as_str()?)));
    lines.extend(told.map(|(test, why)| format!("  {test:<20}{why}")));
    lines
}

/// The buffers that the published formulas give for the path of the advice, line by line.
fn explain(advice: &Advice) -> Vec<String> {
    let mut lines = vec!["published formulas for this path (BBC WHP 178, section 4)".to_owned()];
    let rtt = advice
        .rtt_seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    let (Some(rtt), Some(rate_bps)) = (rtt, advice.bandwidth_bps) else {
        lines.push(
            "  none: they need the round trip and the bottleneck, and not both are known"
                .to_owned(),
        );
        return lines;
    };
    let path = PathSpec { rate_bps, rtt };
    let mut add = |streams: u32, bytes: u64, formula: &str| {
        let streams = show::count(streams, "stream");
        lines.push(format!(
            "  {streams:<20}{} for each stream: {formula}",
            show::bytes(bytes)
        ));
    };
    add(1, path.bdp_bytes(), "round trip × bandwidth [13]");
    // The white paper repeats the guides' advice of 4 to 8 streams.
    let several: BTreeSet<u32> = advice.streams.into_iter().chain([4, 8]).collect();
    for streams in several {
        if let Some(bytes) = path.taught_stream_buffer(streams) {
            add(
                streams,
                bytes,
                "round trip × bandwidth / (streams - 1) [15]",
            );
        }
    }
    let streams = advice.streams.unwrap_or(1);
    lines.push(format!(
        "  {:<20}streams {streams}, buffer: {}",
        "chosen",
        buffer_text(advice)
    ));
    lines
}

fn buffer_text(advice: &Advice) -> String {
    match (advice.set_buffer_bytes, advice.bdp_bytes) {
        (Some(bytes), _) => format!("{} for each stream", show::bytes(bytes)),
        (None, Some(bdp)) => format!(
            "leave it to the kernel (round trip × bandwidth is {})",
            show::bytes(bdp)
        ),
        (None, None) => "leave it to the kernel".to_owned(),
    }
}

/// The measured rate of each direction, and whether they differ; `None` if both are what the bottleneck is.
fn directions_text(advice: &Advice) -> Option<String> {
    if advice.download_bps == advice.upload_bps && !advice.asymmetric {
        return None;
    }
    let rates = [(advice.download_bps, "to"), (advice.upload_bps, "from")];
    let rates = rates.map(|(bps, way)| Some(format!("{} {way} the client", show::bits(bps?))));
    let mut text = rates.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if advice.asymmetric {
        text.push_str(if text.is_empty() { "" } else { ": " });
        text.push_str("its two directions differ");
    }
    (!text.is_empty()).then_some(text)
}

fn rate_text(expected: u64, advice: &Advice) -> String {
    let mut text = show::bits(expected);
    if let (Some(low), Some(high)) = (advice.p10_bps, advice.p90_bps) {
        text.push_str(&format!(
            ", mostly {} to {}",
            show::bits(low),
            show::bits(high)
        ));
    }
    text
}

fn confidence_text(advice: &Advice) -> String {
    let mut text = format!("{:.0} %", advice.confidence.clamp(0.0, 1.0) * 100.0);
    if let Some(age) = advice.age_seconds.and_then(time_text) {
        text.push_str(&format!(", measured {age} ago"));
    }
    if let Some(other) = &advice.measured_by {
        text.push_str(&format!(" at {other}"));
    }
    text
}

/// A time of the answer; `None` if it is none.
fn time_text(seconds: f64) -> Option<String> {
    Duration::try_from_secs_f64(seconds).ok().map(show::time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_described_line_by_line() {
        let advice = Advice {
            client: "192.0.2.7".to_owned(),
            bdp_bytes: Some(12_500_000),
            streams: Some(4),
            expected_bps: Some(900_000_000),
            p10_bps: Some(700_000_000),
            p90_bps: Some(950_000_000),
            rtt_seconds: Some(0.1),
            loss: Some(0.01),
            download_bps: Some(950_000_000),
            upload_bps: Some(100_000_000),
            asymmetric: true,
            confidence: 0.8,
            age_seconds: Some(90.0),
            why: "Autotuning reaches it.".to_owned(),
            ..Advice::default()
        };
        assert_eq!(
            describe(&advice, DataDirection::Download),
            [
                "advice for transfers to 192.0.2.7",
                "  buffer              leave it to the kernel (round trip × bandwidth is 12.5 MB)",
                "  streams             4",
                "  expected rate       900 Mbit/s, mostly 700 Mbit/s to 950 Mbit/s",
                "  round trip          100 ms",
                "  loss                1.000 %",
                "  path                950 Mbit/s to the client, 100 Mbit/s from the client: its two directions differ",
                "  confidence          80 %, measured 90 s ago",
                "  why                 Autotuning reaches it.",
            ]
        );
    }

    #[test]
    fn an_unknown_path_is_described_by_the_servers_reason() {
        let advice = Advice {
            why: "Nothing is known.".to_owned(),
            ..Advice::default()
        };
        assert_eq!(
            describe(&advice, DataDirection::Upload),
            ["Nothing is known."]
        );
    }

    #[test]
    fn the_published_formulas_stand_beside_the_advice() {
        let advice = Advice {
            streams: Some(2),
            rtt_seconds: Some(0.1),
            bandwidth_bps: Some(1_000_000_000),
            ..Advice::default()
        };
        assert_eq!(
            explain(&advice),
            [
                "published formulas for this path (BBC WHP 178, section 4)",
                "  1 stream            12.5 MB for each stream: round trip × bandwidth [13]",
                "  2 streams           12.5 MB for each stream: round trip × bandwidth / (streams - 1) [15]",
                "  4 streams           4.17 MB for each stream: round trip × bandwidth / (streams - 1) [15]",
                "  8 streams           1.79 MB for each stream: round trip × bandwidth / (streams - 1) [15]",
                "  chosen              streams 2, buffer: leave it to the kernel",
            ]
        );
        let unknown = Advice {
            bandwidth_bps: None,
            ..advice
        };
        assert_eq!(explain(&unknown).len(), 2);
    }

    #[test]
    fn a_time_that_is_none_is_not_shown() {
        for seconds in [f64::NAN, -1.0, f64::INFINITY] {
            assert_eq!(time_text(seconds), None);
        }
    }
}
