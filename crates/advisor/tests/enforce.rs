//! Route metrics in a network namespace with real routes. Needs root; without it, the tests say so and end.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use advisor::enforce::IpCommand;
use advisor::enforce::RouteMetrics;
use advisor::enforce::{Enforcement, Enforcer};
use nix::sched::{CloneFlags, unshare};

/// Two hosts behind gateways, and one host route of somebody else.
const NETWORK: &[&str] = &[
    "link set lo up",
    "link add v0 type veth peer name v1",
    // Without link-local addresses, whose routes appear some time after the link.
    "link set v0 addrgenmode none",
    "link set v1 addrgenmode none",
    "addr add 10.9.0.2/24 dev v0",
    "-6 addr add fd00::2/64 dev v0 nodad",
    "link set v0 up",
    "link set v1 up",
    "route add default via 10.9.0.1",
    "-6 route add 2001:db8::/32 via fd00::1",
    "route add 203.0.113.0/24 nexthop via 10.9.0.5 nexthop via 10.9.0.6",
    "route add 198.51.100.99/32 via 10.9.0.8 proto static initcwnd 12",
    "route add 192.0.2.0/24 via 10.9.0.3 advmss 1300",
    "route add 100.64.0.0/10 via 10.9.0.3 mtu lock 1300",
    "route add unreachable 10.8.0.0/16",
];

/// Runs the test in a network namespace of its own. A namespace belongs to a thread, so nothing has to be undone.
fn in_namespace(test: impl FnOnce(&Path) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("skipped: no network namespace can be made: {error}");
            return;
        }
        for command in NETWORK {
            ip(command);
        }
        let directory = tempfile::tempdir().unwrap();
        test(&directory.path().join("routes.json"));
    });
    thread.join().unwrap();
}

fn ip(command: &str) -> String {
    let output = Command::new("ip")
        .args(command.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "ip {command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All routes of both families.
/// Without the state of the link, which comes up meanwhile.
fn routes() -> String {
    let shown = ip("-4 route show") + &ip("-6 route show");
    shown.replace(" linkdown", "")
}

fn enforcer(state: &Path) -> Enforcer {
    Enforcer::new(IpCommand::default(), state, false)
}

fn metrics() -> RouteMetrics {
    RouteMetrics {
        initcwnd: Some(40),
        initrwnd: Some(50),
        congctl: Some("cubic".to_owned()),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn is_changed(enforcement: &Enforcement) -> bool {
    matches!(enforcement, Enforcement::Changed(_))
}

#[test]
fn metrics_are_applied_listed_and_undone() {
    in_namespace(|state| {
        let before = routes();
        let enforcer = enforcer(state);
        for client in [
            "198.51.100.7",
            "10.9.0.77",
            "2001:db8::9",
            "192.0.2.5",
            "::ffff:198.51.100.8",
        ] {
            assert!(
                is_changed(&enforcer.apply(address(client), &metrics()).unwrap()),
                "{client}"
            );
        }
        assert_eq!(enforcer.list().unwrap().len(), 5);
        let get = |client: &str| ip(&format!("route get {client}"));
        for client in [
            "198.51.100.7",
            "198.51.100.8",
            "10.9.0.77",
            "2001:db8::9",
            "192.0.2.5",
        ] {
            let text = get(client);
            assert!(
                text.contains("initcwnd 40") && text.contains("initrwnd 50"),
                "{text}"
            );
            assert!(text.contains("congctl cubic"), "{text}");
        }
        assert!(get("198.51.100.7").contains("via 10.9.0.1 dev v0 src 10.9.0.2"));
        assert!(
            get("192.0.2.5").contains("advmss 1300"),
            "a metric of the route is kept"
        );
        assert!(!get("10.9.0.77").contains("via"));
        let listed = ip("-4 route show proto 201") + &ip("-6 route show proto 201");
        assert_eq!(listed.lines().count(), 5);
        assert_eq!(
            enforcer.apply(address("198.51.100.7"), &metrics()).unwrap(),
            Enforcement::Unchanged
        );
        assert_eq!(enforcer.undo().unwrap().len(), 5);
        assert_eq!(routes(), before);
        assert!(enforcer.list().unwrap().is_empty());
        assert!(enforcer.undo().unwrap().is_empty());
    });
}

#[test]
fn routes_of_others_and_clients_without_a_plain_route_are_left_alone() {
    in_namespace(|state| {
        let before = routes();
        let enforcer = enforcer(state);
        for (client, reason) in [
            ("198.51.100.99", "there is a host route"),
            ("203.0.113.7", "several next hops"),
            ("10.9.0.2", "of type local"),
            ("127.0.0.1", "of type local"),
            ("100.64.0.1", "the metric mtu"),
            ("10.8.0.1", "there is no route"),
            ("2a00::1", "there is no route"),
        ] {
            match enforcer.apply(address(client), &metrics()).unwrap() {
                Enforcement::Refused(why) => assert!(why.contains(reason), "{client}: {why}"),
                other => panic!("{client}: {other:?}"),
            }
        }
        assert_eq!(routes(), before);
        // Somebody puts a route of theirs in the place of ours.
        let client = address("198.51.100.7");
        enforcer.apply(client, &metrics()).unwrap();
        ip("route replace 198.51.100.7/32 via 10.9.0.9 proto static");
        let theirs = routes();
        assert!(matches!(
            enforcer.apply(client, &metrics()).unwrap(),
            Enforcement::Refused(_)
        ));
        assert!(enforcer.undo().unwrap().is_empty());
        assert_eq!(routes(), theirs);
    });
}

#[test]
fn a_crash_at_any_point_can_be_undone() {
    in_namespace(|state| {
        let before = routes();
        let client = address("198.51.100.7");
        enforcer(state).apply(client, &metrics()).unwrap();
        let record = std::fs::read(state).unwrap();
        // After the record and before the route.
        ip("route del 198.51.100.7/32 proto 201");
        assert!(enforcer(state).undo().unwrap().is_empty());
        // After the route's removal and before that of its record: the same picture, and applying works.
        std::fs::write(state, &record).unwrap();
        assert!(is_changed(
            &enforcer(state).apply(client, &metrics()).unwrap()
        ));
        // After the route: another process removes it.
        assert_eq!(enforcer(state).undo().unwrap().len(), 1);
        assert_eq!(routes(), before);
        // A half-written new record is never read.
        enforcer(state).apply(client, &metrics()).unwrap();
        std::fs::write(state.with_extension("json.new"), "[{").unwrap();
        assert_eq!(enforcer(state).undo().unwrap().len(), 1);
        assert_eq!(routes(), before);
        // A broken record changes nothing.
        std::fs::write(state, "[{").unwrap();
        assert!(enforcer(state).apply(client, &metrics()).is_err());
        assert_eq!(routes(), before);
    });
}

#[test]
fn a_refused_metric_leaves_no_route_and_no_record() {
    in_namespace(|state| {
        let before = routes();
        let unknown = RouteMetrics {
            congctl: Some("nosuch".to_owned()),
            ..RouteMetrics::default()
        };
        let error = enforcer(state).apply(address("198.51.100.7"), &unknown);
        assert!(error.unwrap_err().to_string().contains("congestion"));
        assert_eq!(routes(), before);
        assert!(enforcer(state).list().unwrap().is_empty());
    });
}

#[test]
fn a_changed_gateway_is_followed_and_changed_metrics_replace_the_old() {
    in_namespace(|state| {
        let (enforcer, client) = (enforcer(state), address("198.51.100.7"));
        enforcer.apply(client, &metrics()).unwrap();
        ip("route replace default via 10.9.0.33");
        for route in enforcer.refresh().unwrap() {
            assert!(is_changed(&route.result.unwrap()));
        }
        let text = ip("route get 198.51.100.7");
        assert!(
            text.contains("via 10.9.0.33") && text.contains("initcwnd 40"),
            "{text}"
        );
        let other = RouteMetrics {
            initcwnd: Some(20),
            ..RouteMetrics::default()
        };
        enforcer.apply(client, &other).unwrap();
        let text = ip("route get 198.51.100.7");
        assert!(
            text.contains("initcwnd 20") && !text.contains("congctl"),
            "{text}"
        );
        enforcer.apply(client, &RouteMetrics::default()).unwrap();
        assert_eq!(ip("route show proto 201"), "");
        assert!(enforcer.list().unwrap().is_empty());
    });
}

#[test]
fn a_dry_run_prints_the_commands_and_changes_nothing() {
    in_namespace(|state| {
        let before = routes();
        let dry = Enforcer::new(IpCommand::default(), state, true);
        let client = address("198.51.100.7");
        assert_eq!(
            dry.apply(client, &metrics()).unwrap(),
            Enforcement::Changed(vec![
                "ip -4 route add 198.51.100.7/32 via 10.9.0.1 dev v0 proto 201 src 10.9.0.2 initcwnd 40 \
                 initrwnd 50 congctl cubic"
                    .to_owned()
            ])
        );
        assert_eq!(routes(), before);
        let directory = state.parent().unwrap();
        assert_eq!(directory.read_dir().unwrap().count(), 0);
        enforcer(state).apply(client, &metrics()).unwrap();
        let after = routes();
        assert_eq!(
            dry.undo().unwrap(),
            ["ip -4 route del 198.51.100.7/32 via 10.9.0.1 dev v0 proto 201"]
        );
        assert_eq!(routes(), after);
        assert_eq!(dry.list().unwrap().len(), 1);
    });
}
