//! The page: the state of the queue in tables. It loads itself again every five seconds.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};
use units::show;

use crate::store::{JobRow, JobState, QueueOverview, StateCounts};

use super::Seen;

const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;margin:1.5rem;max-width:80rem}\
table{border-collapse:collapse;margin-bottom:1.5rem}td,th{text-align:left;padding:.15rem .8rem .15rem 0;\
border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}td.n,th.n{text-align:right}\
.failed{color:#a00}";

pub(super) fn page(seen: &Seen) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="5";
                meta name="viewport" content="width=device-width";
                title { "longhaul queue" }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { "Queue" }
                @match seen {
                    Ok(queue) => (tables(queue)),
                    Err(error) => p.failed { "The state is unknown: " (error) },
                }
                p { a href="/api/v1/overview" { "JSON" } " · " a href="/metrics" { "metrics" } }
            }
        }
    }
}

fn tables(queue: &QueueOverview) -> Markup {
    html! {
        table {
            (state_heads("Owner"))
            tr { th { "all" } (state_cells(&queue.jobs)) }
            @for row in &queue.owners {
                tr { td { (row.owner) } (state_cells(&row.jobs)) }
            }
        }
        h2 { "Running" }
        (jobs(&queue.running))
        h2 { "Workers" }
        table {
            tr { th { "Worker" } th.n { "Running" } th.n { "Slots" } }
            @for row in &queue.workers {
                tr { td { (row.name) } td.n { (row.running) } td.n { (row.slots) } }
            }
        }
        @if !queue.limits.is_empty() {
            h2 { "Limits" }
            table {
                tr { th { "Endpoint" } th.n { "Sessions" } th.n { "Rate" } th { "Hours" } }
                @for limit in &queue.limits {
                    tr {
                        td { (limit.endpoint) }
                        td.n { (limit.sessions.map_or(String::new(), |n| n.to_string())) }
                        td.n { (limit.rate.map_or(String::new(), show::bits)) }
                        td { @if let Some(hours) = limit.hours { (hours.to_string()) " " (limit.zone) } }
                    }
                }
            }
        }
        h2 { "Ended" }
        (jobs(&queue.ended))
    }
}

fn state_heads(first: &str) -> Markup {
    html! {
        tr { th { (first) } @for state in JobState::ALL { th.n { (state.name()) } } }
    }
}

fn state_cells(jobs: &StateCounts) -> Markup {
    html! {
        @for state in JobState::ALL { td.n { (jobs.get(&state).copied().unwrap_or(0)) } }
    }
}

fn jobs(rows: &[JobRow]) -> Markup {
    html! {
        table {
            tr {
                th.n { "Job" } th { "State" } th { "Owner" } th { "From" } th { "To" } th.n { "Done" } th.n { "Rate" }
                th.n { "Left" } th { "Worker" } th { "Failure" }
            }
            @for row in rows {
                tr {
                    td.n { (row.id) }
                    td.failed[row.state == Some(JobState::Failed)] { (row.state.map_or("?", JobState::name)) }
                    @match &row.copy {
                        Ok(copy) => {
                            @let parts = copy.parts();
                            td { (parts.owner) }
                            td { (parts.places.first().map_or("", String::as_str)) @if parts.places.len() > 2 { " …" } }
                            td { (parts.places.last().map_or("", String::as_str)) }
                        },
                        Err(error) => { td {} td.failed { (error.to_string()) } td {} },
                    }
                    td.n { (done(row)) }
                    td.n { (row.progress.now_bps.map_or(String::new(), show::rate)) }
                    td.n { (left(row)) }
                    td { (row.worker.as_deref().unwrap_or("")) }
                    td.failed { (row.error.as_deref().unwrap_or("")) }
                }
            }
        }
    }
}

fn done(row: &JobRow) -> String {
    let progress = &row.progress;
    match (progress.done_bytes, progress.total_bytes) {
        (Some(done), Some(total @ 1..)) => {
            format!("{} %", done.min(total).saturating_mul(100) / total)
        }
        (Some(done), _) => show::bytes(done),
        (None, _) => String::new(),
    }
}

fn left(row: &JobRow) -> String {
    let left = row.progress.left_seconds;
    let left = left.and_then(|left| Duration::try_from_secs_f64(left).ok());
    left.map_or(String::new(), |left| {
        show::time(Duration::from_secs(left.as_secs()))
    })
}
