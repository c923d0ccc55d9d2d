//! Advice for programs that nobody can change, as metrics of host routes (ip-route(8)). Only when asked for.
//!
//! For each client a host route (/32 or /128) is added beside the route that serves it: same gateway, device and
//! source, and the advised `initcwnd`, `initrwnd` and `congctl`. The routes have a protocol number of their own, so
//! that `ip route show proto 201` lists them. A state file records each one before it is made, so that
//! [`Enforcer::undo`] removes all of them, and nothing else, after a crash, too. `rto_min` is never set:
//! a wrong one makes connections retransmit without need.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use enable::advice::{Advice, is_kernel_name};
use enable::emit::Program;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smallfile::regular_file;

/// Protocol number of the routes (rtnetlink(7), `rtm_protocol`). Numbers above 4 are free for routing daemons; the
/// kernel's and iproute2's lists (rt_protos) have no 201.
pub const ROUTE_PROTOCOL: u8 = 201;

/// Result for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enforcement {
    /// These commands changed the routes, or would have in a dry run.
    Changed(Vec<String>),
    /// The route has these metrics already.
    Unchanged,
    /// Nothing was changed, because of this.
    Refused(String),
}

/// Result of [`Enforcer::refresh`] for one client.
#[derive(Debug)]
pub struct RefreshedRoute {
    /// The client.
    pub client: IpAddr,
    /// Its route.
    pub result: Result<Enforcement, EnforceError>,
}

/// Sets route metrics for clients. Needs CAP_NET_ADMIN, except in a dry run.
#[derive(Debug)]
pub struct Enforcer {
    ip: IpCommand,
    state: PathBuf,
    dry_run: bool,
}

impl Enforcer {
    /// Keeps its record in this file. In a dry run, neither a route nor the record is changed.
    pub fn new(ip: IpCommand, state: &Path, dry_run: bool) -> Self {
        Self {
            ip,
            state: state.to_owned(),
            dry_run,
        }
    }

    /// Gives the path to the client these metrics; without a metric, removes what was given before. A route that
    /// was not made here is never changed: if somebody has a host route to the client, it is refused.
    ///
    /// # Errors
    /// `ip` fails, or the record cannot be written (then no route is added).
    pub fn apply(
        &self,
        client: IpAddr,
        metrics: &RouteMetrics,
    ) -> Result<Enforcement, EnforceError> {
        let mut state = self.open_state()?;
        let client = client.to_canonical();
        let recorded = state.route_to(client).cloned();
        let present = self.host_routes(client)?;
        let own = |route: &Value| recorded.as_ref().is_some_and(|own| is_own(route, own));
        if let Some(foreign) = present.iter().find(|route| !own(route)) {
            let protocol = foreign.get("protocol").and_then(Value::as_str);
            return Ok(Enforcement::Refused(format!(
                "there is a host route to it already (protocol {})",
                protocol.unwrap_or("unknown")
            )));
        }
        let mut commands = Vec::new();
        if let (Some(recorded), false) = (&recorded, present.is_empty()) {
            // The route that serves the client can be seen only without the host route: its gateway may have
            // changed, and then the old host route must not stay, either.
            commands.push(self.change(&delete_words(recorded))?);
        }
        if metrics.is_empty() {
            self.forget(&mut state, client)?;
            return Ok(changed(commands));
        }
        if self.dry_run && !commands.is_empty() {
            commands.push(format!(
                "ip route add {client} proto {ROUTE_PROTOCOL} {} (beside the route that serves it)",
                metrics.words().join(" ")
            ));
            return Ok(Enforcement::Changed(commands));
        }
        let serving = match find(&self.ip, client)? {
            Ok(serving) => serving,
            Err(reason) => {
                self.forget(&mut state, client)?;
                return Ok(Enforcement::Refused(reason));
            }
        };
        let route = EnforcedRoute {
            client,
            gateway: serving.gateway,
            device: serving.device.clone(),
            metrics: metrics.clone(),
        };
        let mut add = place_words("add", &route);
        if let Some(source) = serving.source {
            add.extend(["src".to_owned(), source.to_string()]);
        }
        add.extend(serving.metrics);
        add.extend(metrics.words());
        if !self.dry_run {
            // Before the route, so that a crash in between leaves a record too many and never a route too many.
            state.add(route.clone())?;
        }
        match self.change(&add) {
            Ok(command) => commands.push(command),
            Err(error) => {
                self.forget(&mut state, client)?;
                return Err(error);
            }
        }
        let same = recorded.is_some_and(|recorded| recorded == route);
        Ok(if same && commands.len() == 2 {
            Enforcement::Unchanged
        } else {
            changed(commands)
        })
    }

    /// Puts every recorded route beside the route that serves its client now. A host route stays when a default
    /// route changes, so this must run when routes change, or from time to time.
    ///
    /// # Errors
    /// The record cannot be read. Failures for one client are in its result.
    pub fn refresh(&self) -> Result<Vec<RefreshedRoute>, EnforceError> {
        Ok(self
            .list()?
            .into_iter()
            .map(|route| RefreshedRoute {
                client: route.client,
                result: self.apply(route.client, &route.metrics),
            })
            .collect())
    }

    /// The recorded routes.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn list(&self) -> Result<Vec<EnforcedRoute>, EnforceError> {
        Ok(StateFile::open_to_read(&self.state)?.routes().to_vec())
    }

    /// Removes every recorded route that is still there, and returns the commands. A route that somebody else has
    /// put in its place stays.
    ///
    /// # Errors
    /// `ip` fails: routes that are not removed yet stay in the record.
    pub fn undo(&self) -> Result<Vec<String>, EnforceError> {
        let mut state = self.open_state()?;
        let mut commands = Vec::new();
        for route in state.routes().to_vec() {
            let present = self.host_routes(route.client)?;
            if present.iter().any(|shown| is_own(shown, &route)) {
                commands.push(self.change(&delete_words(&route))?);
            }
            self.forget(&mut state, route.client)?;
        }
        Ok(commands)
    }

    fn open_state(&self) -> Result<StateFile, EnforceError> {
        if self.dry_run {
            StateFile::open_to_read(&self.state)
        } else {
            StateFile::open(&self.state)
        }
    }

    /// The host routes to a client in the main table, whoever made them.
    fn host_routes(&self, client: IpAddr) -> Result<Vec<Value>, EnforceError> {
        let (family, prefix) = match client {
            IpAddr::V4(_) => ("-4", format!("{client}/32")),
            IpAddr::V6(_) => ("-6", format!("{client}/128")),
        };
        let answer = self
            .ip
            .json(&[family, "route", "show", "table", "main", "exact", &prefix])?;
        match answer {
            Value::Array(routes) => Ok(routes),
            other => Err(EnforceError::Answer {
                command: format!("ip {family} route show exact {prefix}"),
                reason: format!("not a list: {other}"),
            }),
        }
    }

    fn change(&self, args: &[String]) -> Result<String, EnforceError> {
        if !self.dry_run {
            self.ip.run(args)?;
        }
        Ok(shown(args))
    }

    fn forget(&self, state: &mut StateFile, client: IpAddr) -> Result<(), EnforceError> {
        if self.dry_run || state.route_to(client).is_none() {
            return Ok(());
        }
        state.remove(client)
    }
}

fn changed(commands: Vec<String>) -> Enforcement {
    if commands.is_empty() {
        Enforcement::Unchanged
    } else {
        Enforcement::Changed(commands)
    }
}

/// The route has our protocol, and the gateway and device of the record.
fn is_own(shown: &Value, own: &EnforcedRoute) -> bool {
    let text = |name| shown.get(name).and_then(Value::as_str);
    text("protocol") == Some(&ROUTE_PROTOCOL.to_string())
        && text("dev") == Some(&own.device)
        && text("gateway").and_then(|gateway| gateway.parse().ok()) == own.gateway
}

/// The kernel deletes a route only if gateway, device and protocol fit, so that nobody else's is hit.
fn delete_words(route: &EnforcedRoute) -> Vec<String> {
    place_words("del", route)
}

fn place_words(verb: &str, route: &EnforcedRoute) -> Vec<String> {
    let (family, bits) = match route.client {
        IpAddr::V4(_) => ("-4", 32),
        IpAddr::V6(_) => ("-6", 128),
    };
    let mut words = vec![
        family.to_owned(),
        "route".to_owned(),
        verb.to_owned(),
        format!("{}/{bits}", route.client),
    ];
    if let Some(gateway) = route.gateway {
        words.extend(["via".to_owned(), gateway.to_string()]);
    }
    words.extend(["dev".to_owned(), route.device.clone()]);
    words.extend(["proto".to_owned(), ROUTE_PROTOCOL.to_string()]);
    words
}

/// A failure to read or change routes.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// `ip` could not be started.
    #[error("cannot run {program}: {source}; install iproute2")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `ip` refused.
    #[error("`{command}` failed: {message}")]
    Refused {
        /// The command as one would type it.
        command: String,
        /// The kernel refused, and not `ip` itself: its exit status is 2 (ip(8)).
        by_kernel: bool,
        /// Its standard error.
        message: String,
    },
    /// The answer is not the JSON that iproute2 writes.
    #[error("cannot read the answer to `{command}`: {reason}")]
    Answer {
        /// The command as one would type it.
        command: String,
        /// The fault.
        reason: String,
    },
    /// The state file cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    State {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// `ip` of this machine.
#[derive(Debug, Clone)]
pub struct IpCommand {
    program: PathBuf,
}

impl Default for IpCommand {
    /// Where distributions install it; else by PATH. A service's PATH often lacks the sbin directories.
    fn default() -> Self {
        let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];
        let found = places.into_iter().find(|place| Path::new(place).is_file());
        Self {
            program: PathBuf::from(found.unwrap_or("ip")),
        }
    }
}

impl IpCommand {
    /// Another program with the same arguments.
    pub fn at(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(&self, args: &[String]) -> Result<String, EnforceError> {
        let output = Command::new(&self.program)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| EnforceError::Start {
                program: self.program.clone(),
                source,
            })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(EnforceError::Refused {
                command: shown(args),
                by_kernel: output.status.code() == Some(2),
                message: message.trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it with `-j -d` and returns what it says.
    fn json(&self, args: &[&str]) -> Result<Value, EnforceError> {
        let args: Vec<String> = ["-j", "-d"]
            .iter()
            .chain(args)
            .map(|&word| word.to_owned())
            .collect();
        let text = self.run(&args)?;
        // Nothing found is an empty answer in some versions, an empty list in others.
        if text.trim().is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        serde_json::from_str(&text).map_err(|error| EnforceError::Answer {
            command: shown(&args),
            reason: error.to_string(),
        })
    }
}

/// The command as one would type it. No word needs quotes: addresses, names of devices, numbers.
fn shown(args: &[String]) -> String {
    format!("ip {}", args.join(" "))
}

/// Metrics of one path (ip-route(8)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteMetrics {
    /// Initial congestion window, segments.
    pub initcwnd: Option<u32>,
    /// Initial receive window, segments.
    pub initrwnd: Option<u32>,
    /// Congestion control, by its kernel name.
    pub congctl: Option<String>,
}

impl RouteMetrics {
    /// The metrics that `longhaul advisor get --emit route` prints; empty if the advice leaves all to the kernel.
    pub fn from_advice(advice: &Advice) -> Self {
        let words = Program::Route.flags(advice);
        let mut metrics = Self::default();
        for pair in words.chunks_exact(2) {
            match pair {
                [name, value] if name == "initcwnd" => metrics.initcwnd = value.parse().ok(),
                [name, value] if name == "initrwnd" => metrics.initrwnd = value.parse().ok(),
                [name, value] if name == "congctl" && is_name(value) => {
                    metrics.congctl = Some(value.clone());
                }
                _ => {}
            }
        }
        metrics
    }

    /// No metric is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Words for `ip route add`.
    fn words(&self) -> Vec<String> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let name = self.congctl.clone().filter(|name| is_name(name));
        [
            ("initcwnd", number(self.initcwnd)),
            ("initrwnd", number(self.initrwnd)),
            ("congctl", name),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some([name.to_owned(), value?]))
        .flatten()
        .collect()
    }
}

/// `lock` would be a keyword of ip-route(8).
fn is_name(text: &str) -> bool {
    text != "lock" && is_kernel_name(text)
}

/// Gateway, device and source of the packets to one client, and the metrics they have already.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServingRoute {
    /// `None`: the client is on the device's own network.
    gateway: Option<IpAddr>,
    device: String,
    source: Option<IpAddr>,
    /// Words for `ip route add`: metrics of the route that is covered, which must go on to hold.
    metrics: Vec<String>,
}

/// The fields of `ip -j -d route get` and `... fibmatch` that are used.
#[derive(Deserialize)]
struct ShownRoute {
    #[serde(rename = "type")]
    kind: Option<String>,
    table: Option<String>,
    gateway: Option<IpAddr>,
    via: Option<Value>,
    dev: Option<String>,
    prefsrc: Option<IpAddr>,
    nexthops: Option<Vec<Value>>,
    encap: Option<Value>,
    #[serde(default)]
    metrics: Vec<Map<String, Value>>,
}

/// Finds the route. The inner error says why no host route may be put beside it.
fn find(ip: &IpCommand, client: IpAddr) -> Result<Result<ServingRoute, String>, EnforceError> {
    let address = client.to_string();
    // The routing table's entry has the metrics and next hops, the lookup has the source.
    let entry = shown_route(ip, &["route", "get", "fibmatch", &address])?;
    let lookup = shown_route(ip, &["route", "get", &address])?;
    let (Some(entry), Some(lookup)) = (entry, lookup) else {
        return Ok(Err("there is no route to it".to_owned()));
    };
    let kind = entry.kind.as_deref().unwrap_or("unicast");
    if kind != "unicast" {
        return Ok(Err(format!("its route is of type {kind}")));
    }
    if entry.table.as_deref().unwrap_or("main") != "main" {
        return Ok(Err(
            "a rule sends it to a routing table other than main".to_owned()
        ));
    }
    if entry.nexthops.is_some() {
        return Ok(Err("its route has several next hops".to_owned()));
    }
    if entry.via.is_some() || entry.encap.is_some() {
        return Ok(Err("its route has a gateway of another kind".to_owned()));
    }
    let Some(device) = lookup.dev.filter(|device| is_device(device)) else {
        return Ok(Err("its route names no device".to_owned()));
    };
    let metrics = match kept_metrics(&entry.metrics) {
        Ok(metrics) => metrics,
        Err(name) => return Ok(Err(format!("its route has the metric {name}"))),
    };
    Ok(Ok(ServingRoute {
        gateway: lookup.gateway,
        device,
        source: lookup.prefsrc,
        metrics,
    }))
}

fn shown_route(ip: &IpCommand, args: &[&str]) -> Result<Option<ShownRoute>, EnforceError> {
    let value = match ip.json(args) {
        Ok(value) => value,
        // The kernel's answer is an error if there is no route, or an unreachable, prohibit or blackhole route.
        Err(EnforceError::Refused {
            by_kernel: true, ..
        }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let routes: Vec<ShownRoute> =
        serde_json::from_value(value).map_err(|error| EnforceError::Answer {
            command: format!("ip {}", args.join(" ")),
            reason: error.to_string(),
        })?;
    Ok(routes.into_iter().next())
}

/// The metrics that a host route can repeat exactly; else the name of one that it cannot. `mtu` may be locked, which
/// the JSON of iproute2 6.1 does not say; times lose digits. The advised ones need not be kept.
fn kept_metrics(metrics: &[Map<String, Value>]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (name, value) in metrics.iter().flatten() {
        match (name.as_str(), value.as_u64()) {
            ("initcwnd" | "initrwnd" | "congestion", _) => {}
            ("advmss" | "hoplimit" | "quickack" | "window", Some(value)) => {
                words.extend([name.clone(), value.to_string()]);
            }
            _ => return Err(name.clone()),
        }
    }
    Ok(words)
}

/// A name as the kernel allows (dev_valid_name): at most 15 bytes, no `/`, no blank.
fn is_device(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

/// A host route that was, or is about to be, added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnforcedRoute {
    /// The host.
    pub client: IpAddr,
    /// Its gateway.
    pub gateway: Option<IpAddr>,
    /// Its device.
    pub device: String,
    /// Its metrics.
    pub metrics: RouteMetrics,
}

/// The largest state file that is read.
const MOST_FILE_BYTES: u64 = 16 << 20;

/// The state file. One that may be changed is locked as long as this lives, so that two commands do not change
/// routes at one time.
#[derive(Debug)]
struct StateFile {
    path: PathBuf,
    routes: Vec<EnforcedRoute>,
    _lock: Option<File>,
}

impl StateFile {
    /// Waits for the lock and reads the file; without a file there are no routes.
    fn open(path: &Path) -> Result<Self, EnforceError> {
        let lock = lock(path).map_err(|source| EnforceError::State {
            action: "lock",
            path: path.to_owned(),
            source,
        })?;
        Self::read(path, Some(lock))
    }

    /// Reads the file without a lock, as somebody may who must not change it.
    fn open_to_read(path: &Path) -> Result<Self, EnforceError> {
        Self::read(path, None)
    }

    fn read(path: &Path, lock: Option<File>) -> Result<Self, EnforceError> {
        let failed = |action| {
            move |source| EnforceError::State {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let routes = read(path).map_err(failed("read"))?;
        Ok(Self {
            path: path.to_owned(),
            routes,
            _lock: lock,
        })
    }

    fn routes(&self) -> &[EnforcedRoute] {
        &self.routes
    }

    fn route_to(&self, client: IpAddr) -> Option<&EnforcedRoute> {
        self.routes.iter().find(|route| route.client == client)
    }

    /// Records a route, on disk when this returns, in place of an earlier one to the same client.
    fn add(&mut self, route: EnforcedRoute) -> Result<(), EnforceError> {
        let mut routes = self.routes.clone();
        routes.retain(|other| other.client != route.client);
        routes.push(route);
        self.save(routes)
    }

    /// Forgets the route to a client.
    fn remove(&mut self, client: IpAddr) -> Result<(), EnforceError> {
        let mut routes = self.routes.clone();
        routes.retain(|other| other.client != client);
        self.save(routes)
    }

    fn save(&mut self, routes: Vec<EnforcedRoute>) -> Result<(), EnforceError> {
        let text = serde_json::to_vec_pretty(&routes).map_err(io::Error::other);
        text.and_then(|text| smallfile::replace(&self.path, &text))
            .map_err(|source| EnforceError::State {
                action: "write",
                path: self.path.clone(),
                source,
            })?;
        self.routes = routes;
        Ok(())
    }
}

/// The lock is on a file of its own, because the state file is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside)?;
    file.lock()?;
    Ok(file)
}

fn read(path: &Path) -> io::Result<Vec<EnforcedRoute>> {
    let text = match regular_file::read_to_string(path, MOST_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
