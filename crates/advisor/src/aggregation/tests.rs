//! One conformance test for every policy, and the particulars of each.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config(policy: AggregationName) -> AggregationConfig {
    AggregationConfig {
        policy,
        ..AggregationConfig::default()
    }
}

/// Table 5 of the paper: clients and their bottleneck routers.
const TABLE_5: [(&str, &str); 5] = [
    ("129.237.116.6", "164.113.232.202"),
    ("129.237.127.152", "164.113.232.202"),
    ("131.243.2.12", "131.243.128.100"),
    ("131.243.2.91", "131.243.128.100"),
    ("192.195.6.68", "144.232.0.171"),
];

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

/// Every client of table 5 with a bottleneck of this rate, measured and tested in turn, a second apart.
fn measured(policy: AggregationName, rate: u64) -> GroupIndex {
    let mut groups = GroupIndex::new(super::policy(&config(policy)).unwrap());
    for (second, (client, router)) in (0..).zip(TABLE_5) {
        let client = ip(client);
        groups.place(&ClientPath {
            client,
            bottleneck: Some(ip(router)),
            hops: &[],
            bandwidth_bps: Some(rate),
        });
        groups.started(client, 0, at(second));
        groups.measured(client, at(second));
    }
    groups
}

/// Every policy has these properties.
#[test]
fn every_policy_keeps_groups_consistent() {
    use AggregationName as Name;
    for name in [
        Name::Pairwise,
        Name::Bottleneck,
        Name::SlowBottleneck,
        Name::Prefix,
    ] {
        let mut groups = measured(name, 1_000_000);
        for (client, _) in TABLE_5 {
            let client = ip(client);
            if let Some((member, group)) = groups.stand_in(client) {
                assert_ne!(member, client, "{name:?}");
                assert_eq!(groups.group(member), Some(group), "{name:?}");
                assert_eq!(groups.group(client), Some(group), "{name:?}");
            }
            let held = groups.not_before(client, 0, HOUR, true);
            assert_eq!(
                held.is_some(),
                groups.stand_in(client).is_some(),
                "{name:?}"
            );
            // Another test of the group never ran.
            assert_eq!(groups.not_before(client, 1, HOUR, true), None, "{name:?}");
        }
        let unknown = ip("198.51.100.1");
        assert_eq!(groups.stand_in(unknown), None, "{name:?}");
        assert_eq!(groups.not_before(unknown, 0, HOUR, false), None, "{name:?}");
        for (client, _) in TABLE_5 {
            groups.remove(ip(client));
            assert_eq!(
                (groups.group(ip(client)), groups.stand_in(ip(client))),
                (None, None)
            );
        }
        assert!(
            groups.members.is_empty() && groups.of_client.is_empty(),
            "{name:?}"
        );
    }
}

#[test]
fn pairwise_shares_nothing() {
    let groups = measured(AggregationName::Pairwise, 1_000_000);
    assert!(
        TABLE_5
            .iter()
            .all(|(client, _)| groups.group(ip(client)).is_none())
    );
}

#[test]
fn clients_behind_one_bottleneck_router_share_after_one_test_each() {
    let mut groups = measured(AggregationName::Bottleneck, 100_000_000);
    let (first, second) = (ip("129.237.116.6"), ip("129.237.127.152"));
    let router = ClientGroup::Router(ip("164.113.232.202"));
    assert_eq!(groups.stand_in(first), Some((second, router)));
    assert_eq!(groups.stand_in(second), None, "it was measured last itself");
    assert_eq!(groups.stand_in(ip("192.195.6.68")), None, "it is alone");
    // One of the two, but not both.
    assert_eq!(groups.not_before(first, 0, HOUR, true), Some(at(3601)));
    assert_eq!(
        groups.not_before(first, 0, HOUR, false),
        None,
        "each is measured once"
    );
    // The test did not run after all: another server held the lease.
    groups.put_off(second, 0);
    assert_eq!(groups.not_before(first, 0, HOUR, true), None);
}

#[test]
fn a_client_behind_a_known_slow_router_shares_by_its_route_alone() {
    let mut groups = measured(AggregationName::SlowBottleneck, 1_000_000);
    let client = ip("198.51.100.1");
    let path = ClientPath {
        client,
        bottleneck: None,
        hops: &[ip("10.0.0.1"), ip("144.232.0.171")],
        bandwidth_bps: None,
    };
    groups.place(&path);
    let slow = ip("192.195.6.68");
    assert_eq!(groups.stand_in(client).unwrap().0, slow);
    assert!(
        groups.not_before(client, 0, HOUR, false).is_some(),
        "no test is needed"
    );
    // The slow link was replaced.
    groups.place(&ClientPath {
        client: slow,
        bottleneck: Some(ip("144.232.0.171")),
        hops: &[],
        bandwidth_bps: Some(1_000_000_000),
    });
    groups.place(&path);
    assert_eq!(groups.group(client), None);
    let fast = measured(AggregationName::SlowBottleneck, 10_000_000);
    assert!(
        TABLE_5
            .iter()
            .all(|(client, _)| fast.group(ip(client)).is_none())
    );
}

#[test]
fn the_longest_prefix_of_the_table_counts_and_then_the_fixed_length() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("prefixes");
    let text = "# routes\n10.0.0.0/8 via x\n10.1.0.0/16\n\n2001:db8::/32\n10.1.2.128/25 # lab\n";
    std::fs::write(&table, text).unwrap();
    let config = AggregationConfig {
        prefix_table: Some(table.clone()),
        ..config(AggregationName::Prefix)
    };
    let policy = ByPrefix::load(&config).unwrap();
    for (client, prefix) in [
        ("10.9.9.9", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.0.0/16"),
        ("10.1.2.200", "10.1.2.128/25"),
        ("192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:5::1", "2001:db8::/32"),
        ("2001:db9:0:7::1", "2001:db9:0:7::/64"),
    ] {
        assert_eq!(policy.prefix_of(ip(client)).unwrap().to_string(), prefix);
    }
    std::fs::write(&table, "10.0.0.0/8\n10.0.0/33\n").unwrap();
    let error = ByPrefix::load(&config).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("10.0.0/33"),
        "{error}"
    );
}
