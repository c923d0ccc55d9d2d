//! Adds, refreshes, lists and removes the host routes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ip_command::{EnforceError, IpCommand, shown};
use super::route_metrics::RouteMetrics;
use super::serving_route;
use super::state::{EnforcedRoute, StateFile};

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
        let serving = match serving_route::find(&self.ip, client)? {
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
