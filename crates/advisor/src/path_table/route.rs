//! The routers on a path, as the details of tests tell them.

use std::net::IpAddr;

use serde_json::Value;

/// Most routers that are kept; longer routes than this are loops.
const MOST_HOPS: usize = 64;

/// The routers between this host and a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownRoute {
    /// Routers that answered, nearest first.
    pub hops: Box<[IpAddr]>,
    /// The router before the bottleneck.
    pub bottleneck: Option<IpAddr>,
    /// The way back differs.
    pub asymmetric: bool,
}

impl KnownRoute {
    /// Adds what a test's detail tells: `hops`, an array of addresses, or of objects with an `address`;
    /// `bottleneck_router`, an address; `is_asymmetric`, a boolean. Other members, and members of other types,
    /// are left to people. Returns whether anything was told.
    pub(super) fn learn(&mut self, detail: &Value) -> bool {
        let mut learned = false;
        let hops = detail.get("hops").and_then(Value::as_array);
        let hops: Box<[IpAddr]> = hops
            .into_iter()
            .flatten()
            .filter_map(hop)
            .take(MOST_HOPS)
            .collect();
        // A list without addresses, as pchar gives it, says nothing about routers.
        if !hops.is_empty() {
            self.hops = hops;
            learned = true;
        }
        if let Some(router) = detail.get("bottleneck_router").and_then(address) {
            self.bottleneck = Some(router);
            learned = true;
        }
        if let Some(asymmetric) = detail.get("is_asymmetric").and_then(Value::as_bool) {
            self.asymmetric = asymmetric;
            learned = true;
        }
        learned
    }
}

fn hop(value: &Value) -> Option<IpAddr> {
    address(value).or_else(|| value.get("address").and_then(address))
}

fn address(value: &Value) -> Option<IpAddr> {
    let address: IpAddr = value.as_str()?.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_and_objects_are_hops_and_the_rest_is_left_alone() {
        let mut route = KnownRoute::default();
        let hops =
            json!(["10.0.0.1", {"address": "10.0.0.2", "rtt": 0.1}, null, {"address": null}]);
        assert!(route.learn(&json!({"hops": hops, "bottleneck_router": "::ffff:10.0.0.2"})));
        let routers: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        assert_eq!(*route.hops, routers);
        assert_eq!(route.bottleneck, Some(routers[1]));
        assert!(!route.learn(&json!({"hops": 5, "bottleneck_router": "?", "is_asymmetric": "no"})));
        assert!(!route.learn(&json!("text")));
        assert_eq!(*route.hops, routers);
        let long: Vec<String> = (0..200).map(|n| format!("10.0.1.{n}")).collect();
        assert!(route.learn(&json!({ "hops": long })));
        assert_eq!(route.hops.len(), MOST_HOPS);
    }
}
