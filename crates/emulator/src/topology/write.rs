//! Writes a topology as TOML.

use std::fmt::Write as _;

use link::trace::{BUILT_IN_TRACES, PathTrace};
use link::{Conditions, Loss, Queue};
use units::exact;

use super::direction_keys::KeysFromTrace;
use super::{LabHost, LabPath, LabRoute, Topology};

/// The topology as TOML text.
pub(super) fn topology(topology: &Topology) -> String {
    let seed = match i64::try_from(topology.seed) {
        Ok(seed) => seed.to_string(),
        // TOML integers are signed 64-bit numbers.
        Err(_) => quoted(&topology.seed.to_string()),
    };
    let mut text = format!(
        "seed = {seed}\noffload = {}\nmtu = {}\n",
        topology.offload, topology.mtu
    );
    for item in &topology.hosts {
        host(&mut text, item);
    }
    for item in &topology.paths {
        path(&mut text, item, topology);
    }
    text
}

fn host(text: &mut String, host: &LabHost) {
    let _ = writeln!(text, "\n[hosts.{}]", host.name);
    if let Some(name) = &host.congestion_control {
        line(text, "", "cc", &quoted(name));
    }
    for (key, value) in &host.sysctls {
        line(text, "sysctl.", &quoted(key), &quoted(value));
    }
}

fn path(text: &mut String, path: &LabPath, topology: &Topology) {
    let (hosts, routers) = (&topology.hosts, &topology.routers);
    let name = |index: usize| hosts.get(index).map_or("", |host| &host.name);
    let (first, second) = (name(path.between.0), name(path.between.1));
    let _ = writeln!(text, "\n[[paths]]\nbetween = [\"{first}\", \"{second}\"]");
    // Equal directions are written once, which keeps common topologies readable.
    if path.forward == path.back {
        direction(text, "", &path.forward);
    } else {
        direction(text, "forward.", &path.forward);
        direction(text, "back.", &path.back);
    }
    if path.back_route == path.forward_route.reversed() {
        route(text, "", &path.forward_route, routers);
    } else {
        route(text, "forward.", &path.forward_route, routers);
        route(text, "back.", &path.back_route, routers);
    }
}

fn route(text: &mut String, prefix: &str, route: &LabRoute, routers: &[String]) {
    // Only the defaults of `[default]`, which is not written, could give a direct path a router.
    if *route == LabRoute::DIRECT {
        return;
    }
    let name = |index: &Option<usize>| index.and_then(|index| routers.get(index));
    let names = route.routers.iter().map(name);
    let names: Vec<_> = names.map(|name| quoted(name.map_or("*", |n| n))).collect();
    line(text, prefix, "routers", &format!("[{}]", names.join(", ")));
    let link = route.bottleneck_link.to_string();
    line(text, prefix, "bottleneck_link", &link);
}

fn direction(text: &mut String, prefix: &str, conditions: &Conditions) {
    let replaced = KeysFromTrace::of_trace(conditions.trace.as_deref());
    // A key that the trace sets as well would be an error when the file is read.
    if !replaced.delay {
        line(
            text,
            prefix,
            "delay",
            &quoted(&exact::time(conditions.delay)),
        );
    }
    if let Some(rate) = conditions.rate
        && !replaced.rate
    {
        line(text, prefix, "rate", &quoted(&rate.to_string()));
    }
    let queue = match conditions.queue {
        Queue::Unlimited => "unlimited".into(),
        Queue::Packets(packets) => format!("{packets} packets"),
        Queue::Bytes(bytes) => format!("{bytes}B"),
    };
    line(text, prefix, "queue", &quoted(&queue));
    if !replaced.loss {
        loss(text, prefix, conditions.loss);
    }
    if let Some(reorder) = conditions.reorder {
        let (share, extra) = (share(reorder.probability), exact::time(reorder.extra));
        let value = format!("{{ probability = {share}, extra = \"{extra}\" }}");
        line(text, prefix, "reorder", &value);
    }
    for (key, probability) in [
        ("duplicate", conditions.duplicate),
        ("corrupt", conditions.corrupt),
    ] {
        if probability > 0.0 {
            line(text, prefix, key, &share(probability));
        }
    }
    if let Some(trace) = &conditions.trace {
        line(text, prefix, "trace", &trace_value(trace));
    }
}

fn loss(text: &mut String, prefix: &str, loss: Loss) {
    match loss {
        Loss::Never => {}
        Loss::Independent(probability) => line(text, prefix, "loss", &share(probability)),
        Loss::Bursty {
            to_bad,
            to_good,
            in_good,
            in_bad,
        } => {
            let value = format!(
                "{{ to_bad = {}, to_good = {}, in_good = {}, in_bad = {} }}",
                share(to_bad),
                share(to_good),
                share(in_good),
                share(in_bad)
            );
            line(text, prefix, "burst_loss", &value);
        }
    }
}

fn line(text: &mut String, prefix: &str, key: &str, value: &str) {
    let _ = writeln!(text, "{prefix}{key} = {value}");
}

/// The name of a built-in trace, or the CSV text of another one. The CSV has only letters, digits,
/// commas and points, so nothing in it can end the quoted string.
fn trace_value(trace: &PathTrace) -> String {
    let shipped = BUILT_IN_TRACES.into_iter().find(|(name, _)| {
        link::trace::built_in_trace(name).is_some_and(|shipped| *shipped == *trace)
    });
    match shipped {
        Some((name, _)) => quoted(name),
        None => format!("'''\n{}'''", trace.to_csv()),
    }
}

fn share(probability: f64) -> String {
    quoted(&exact::probability(probability))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
