//! Which job may start next, with how many sessions and at which rate: limits of endpoints over the whole fleet, and fairness
//! between owners.

use std::collections::BTreeMap;

/// The name of the limit that holds for each endpoint without one of its own.
pub const EVERY_ENDPOINT: &str = "*";

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A span of the day, in minutes since midnight. It may pass midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayHours {
    from: u16,
    to: u16,
}

impl DayHours {
    /// A span from one minute of the day up to another, without it; `None`: there are no such minutes, or they are equal.
    pub fn new(from: u16, to: u16) -> Option<Self> {
        (from < DAY && to < DAY && from != to).then_some(Self { from, to })
    }

    /// Reads `22:00-06:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| -> Option<u16> {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let (from, to) = text.split_once('-')?;
        Self::new(minute(from)?, minute(to)?)
    }

    /// First minute, and the one after the last.
    pub fn minutes(self) -> (u16, u16) {
        (self.from, self.to)
    }

    /// Whether a minute of the day is inside.
    pub fn contains(self, minute: u16) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

impl std::fmt::Display for DayHours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = (self.from, self.to);
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            to / 60,
            to % 60
        )
    }
}

/// Bounds of an endpoint over the whole fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointLimit {
    /// The host, or [`EVERY_ENDPOINT`].
    pub endpoint: String,
    /// Most sessions of all jobs together.
    pub sessions: Option<u32>,
    /// Rate of all jobs together, bits per second.
    pub rate: Option<u64>,
    /// When jobs may run.
    pub hours: Option<DayHours>,
    /// Time zone of `hours`, as PostgreSQL knows it.
    pub zone: String,
    /// The minute of the day there, now.
    pub minute: u16,
}

/// The use that one running job makes of endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Whose job it is.
    pub owner: String,
    /// The endpoints.
    pub endpoints: Vec<String>,
    /// Its sessions with each of them.
    pub sessions: u32,
}

/// The oldest job of an owner that waits and may start as far as time and closed endpoints tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingJob {
    /// The job.
    pub id: i64,
    /// Whose job it is.
    pub owner: String,
    /// The endpoints.
    pub endpoints: Vec<String>,
    /// The sessions that it asks for.
    pub sessions: u32,
    /// When a job of this owner started last, milliseconds since 1970; `None`: never.
    pub served_ms: Option<i64>,
}

/// Limits, and all jobs that run anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetState {
    /// Limits of endpoints.
    pub limits: Vec<EndpointLimit>,
    /// Jobs that run.
    pub running: Vec<RunningJob>,
}

impl FleetState {
    fn limit_of(&self, endpoint: &str) -> Option<&EndpointLimit> {
        let named = |name: &str| self.limits.iter().find(|limit| limit.endpoint == name);
        named(endpoint).or_else(|| named(EVERY_ENDPOINT))
    }

    fn users_of<'s>(&'s self, endpoint: &'s str) -> impl Iterator<Item = &'s RunningJob> {
        let uses = move |job: &&RunningJob| job.endpoints.iter().any(|used| used == endpoint);
        self.running.iter().filter(uses)
    }

    /// Sessions that may still begin at an endpoint; `None`: any number.
    fn free_sessions(&self, endpoint: &str) -> Option<u32> {
        let limit = self.limit_of(endpoint)?;
        if !is_open(limit) {
            return Some(0);
        }
        let used: u32 = self.users_of(endpoint).map(|job| job.sessions).sum();
        limit.sessions.map(|most| most.saturating_sub(used))
    }

    /// The endpoints at which no further job may start now.
    pub fn closed(&self) -> Vec<String> {
        let named = self.limits.iter().map(|limit| &limit.endpoint);
        let used = self.running.iter().flat_map(|job| &job.endpoints);
        let mut closed: Vec<String> = named
            .chain(used)
            .filter(|endpoint| self.free_sessions(endpoint) == Some(0))
            .cloned()
            .collect();
        closed.sort_unstable();
        closed.dedup();
        closed
    }

    /// Whether the hours of these endpoints permit a job that runs.
    pub fn may_go_on(&self, endpoints: &[String]) -> bool {
        let mut limits = endpoints.iter().filter_map(|name| self.limit_of(name));
        limits.all(is_open)
    }

    /// The sessions that a job gets, at most those that it asks for; 0: it may not start.
    pub fn grant(&self, endpoints: &[String], sessions: u32) -> u32 {
        let free = endpoints.iter().filter_map(|name| self.free_sessions(name));
        free.min().map_or(sessions, |free| free.min(sessions))
    }

    /// The rate of one of the running jobs, bits per second: its share of each endpoint's rate, and not more than its own.
    /// Each job that uses an endpoint has the same share. `None`: no limit.
    pub fn rate_share(&self, endpoints: &[String], own: Option<u64>) -> Option<u64> {
        let shares = endpoints.iter().filter_map(|name| {
            let users = self.users_of(name).count().max(1) as u64;
            self.limit_of(name)?.rate.map(|rate| (rate / users).max(1))
        });
        shares.chain(own).min()
    }

    /// The next job: of the owner with the fewest running sessions; of several such, of the one whose last job started
    /// earliest. `None`: none may start.
    pub fn next<'w>(&self, waiting: &'w [WaitingJob]) -> Option<(&'w WaitingJob, u32)> {
        let mut running: BTreeMap<&str, u32> = BTreeMap::new();
        for job in &self.running {
            *running.entry(&job.owner).or_default() += job.sessions;
        }
        let granted = waiting.iter().filter_map(|job| {
            let sessions = self.grant(&job.endpoints, job.sessions);
            (sessions > 0).then_some((job, sessions))
        });
        granted.min_by_key(|(job, _)| {
            let share = running.get(job.owner.as_str()).copied();
            (share.unwrap_or(0), job.served_ms.unwrap_or(0), job.id)
        })
    }

    /// Notes that a job has started.
    pub fn start(&mut self, job: &WaitingJob, sessions: u32) {
        self.running.push(RunningJob {
            owner: job.owner.clone(),
            endpoints: job.endpoints.clone(),
            sessions,
        });
    }
}

fn is_open(limit: &EndpointLimit) -> bool {
    limit.hours.is_none_or(|hours| hours.contains(limit.minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(endpoint: &str) -> EndpointLimit {
        EndpointLimit {
            endpoint: endpoint.to_owned(),
            sessions: None,
            rate: None,
            hours: None,
            zone: "UTC".to_owned(),
            minute: 12 * 60,
        }
    }

    fn limited(endpoints: &[&str]) -> FleetState {
        FleetState {
            limits: endpoints.iter().map(|endpoint| limit(endpoint)).collect(),
            running: Vec::new(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn waiting(id: i64, owner: &str, endpoints: &[&str], served_ms: Option<i64>) -> WaitingJob {
        WaitingJob {
            id,
            owner: owner.to_owned(),
            endpoints: names(endpoints),
            sessions: 4,
            served_ms,
        }
    }

    fn running(owner: &str, endpoints: &[&str], sessions: u32) -> RunningJob {
        RunningJob {
            owner: owner.to_owned(),
            endpoints: names(endpoints),
            sessions,
        }
    }

    #[test]
    fn a_job_gets_the_sessions_that_are_free_at_each_of_its_endpoints() {
        let mut fleet = limited(&["a", "b"]);
        (fleet.limits[0].sessions, fleet.limits[1].sessions) = (Some(8), Some(3));
        fleet.running = vec![running("x", &["a"], 6)];
        assert_eq!(fleet.grant(&names(&["a"]), 4), 2);
        assert_eq!(fleet.grant(&names(&["a", "b"]), 1), 1);
        assert_eq!(fleet.grant(&names(&["c"]), 4), 4);
        fleet.running.push(running("y", &["b", "a"], 3));
        assert_eq!(fleet.grant(&names(&["a"]), 4), 0);
        assert_eq!(fleet.closed(), ["a", "b"]);
    }

    #[test]
    fn the_limit_of_every_endpoint_holds_where_there_is_no_other() {
        let mut fleet = limited(&[EVERY_ENDPOINT, "a"]);
        fleet.limits[0].sessions = Some(1);
        fleet.running = vec![running("x", &["a"], 9), running("x", &["b"], 1)];
        assert_eq!(fleet.closed(), ["b"]);
        assert_eq!(fleet.grant(&names(&["c"]), 4), 1);
    }

    #[test]
    fn hours_close_an_endpoint_also_across_midnight() {
        let night = DayHours::parse("22:00-06:00").unwrap();
        assert!(night.contains(23 * 60) && night.contains(0) && !night.contains(6 * 60));
        assert_eq!(night.to_string(), "22:00-06:00");
        for text in ["22:00", "22-6", "24:00-01:00", "06:00-06:00", "1:60-2:00"] {
            assert_eq!(DayHours::parse(text), None, "{text}");
        }
        let mut fleet = limited(&["a"]);
        fleet.limits[0].hours = Some(night);
        assert_eq!(fleet.closed(), ["a"]);
        assert!(!fleet.may_go_on(&names(&["b", "a"])) && fleet.may_go_on(&names(&["b"])));
        fleet.limits[0].minute = 1;
        assert!(fleet.closed().is_empty() && fleet.may_go_on(&names(&["a"])));
    }

    #[test]
    fn a_rate_is_divided_over_the_jobs_that_use_the_endpoint() {
        let mut fleet = limited(&["a"]);
        fleet.limits[0].rate = Some(900);
        let used = ["a"];
        fleet.running = vec![
            running("x", &used, 1),
            running("y", &used, 9),
            running("x", &["b"], 1),
        ];
        assert_eq!(fleet.rate_share(&names(&["a", "b"]), None), Some(450));
        assert_eq!(fleet.rate_share(&names(&["a"]), Some(100)), Some(100));
        assert_eq!(fleet.rate_share(&names(&["b"]), None), None);
    }

    #[test]
    fn owners_take_turns_by_what_runs_and_then_by_who_waited_longest() {
        let mut fleet = limited(&[]);
        fleet.running = vec![running("anna", &["a"], 2)];
        let jobs = [
            waiting(1, "anna", &["a"], Some(5)),
            waiting(2, "ben", &["a"], Some(9)),
            waiting(3, "cleo", &["a"], None),
        ];
        let (first, _) = fleet.next(&jobs).unwrap();
        assert_eq!(first.id, 3);
        fleet.start(first, 4);
        let (second, _) = fleet.next(&jobs[..2]).unwrap();
        assert_eq!(second.id, 2);
        fleet.start(second, 4);
        assert_eq!(fleet.next(&jobs[..1]).unwrap().0.id, 1);
    }

    #[test]
    fn a_closed_endpoint_holds_nobody_else_back() {
        let mut fleet = limited(&["a"]);
        fleet.limits[0].sessions = Some(0);
        let jobs = [
            waiting(1, "anna", &["a"], None),
            waiting(2, "ben", &["b"], Some(1)),
        ];
        assert_eq!(fleet.next(&jobs).map(|(job, _)| job.id), Some(2));
        assert_eq!(fleet.next(&jobs[..1]), None);
    }
}
