//! Cases that every database must pass.

use std::net::IpAddr;
use std::time::Duration;

use advisor::chosen_tests::ChosenTests;
use advisor::config::{HistoryConfig, StoreUrl};
use advisor::measurement::{Measurement, Quantity};
use advisor::store::{LONGEST_LEASE, Store, StoreEntry, StoredClient};
use jiff::Timestamp;
use sqlx::Connection;
use test_postgres::Postgres;

use crate::servers::four_servers_share_measurements_and_take_turns;

/// Runs every case on a new database each.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        $(mod $case {
            #[tokio::test]
            async fn on_sqlite() {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("state/paths.sqlite");
                let url = format!("sqlite://{}", path.display());
                super::$case(&advisor::config::StoreUrl::try_from(url).unwrap()).await;
            }
        })*

        #[tokio::test]
        async fn postgresql_passes_the_same_cases_as_sqlite() {
            let Some(server) = Postgres::start("postgresql_passes_the_same_cases_as_sqlite") else {
                return;
            };
            $(
                let url = StoreUrl::try_from(server.database(stringify!($case))).unwrap();
                $case(&url).await;
            )*
        }
    };
}

cases![
    values_come_back_once,
    the_latest_values_are_read_in_order,
    a_value_from_the_future_hides_no_other,
    old_values_become_averages,
    clients_come_back_and_are_forgotten,
    servers_share_a_database_without_seeing_each_other,
    a_lease_has_one_holder,
    the_detail_that_was_written_last_counts,
    lists_of_tests_of_the_first_version_are_kept,
    four_servers_share_measurements_and_take_turns,
];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn known(last: u8) -> StoreEntry {
    StoreEntry::Client(StoredClient {
        client: client(last),
        source: "api".to_owned(),
        added: at(0),
        seen: at(1),
        asked: None,
        asked_bytes: 0,
        tests: None,
    })
}

fn rtt(last: u8, seconds: i64, value: f64) -> StoreEntry {
    StoreEntry::Measured(Measurement {
        client: client(last),
        test: "ping".to_owned(),
        at: at(seconds),
        values: vec![(Quantity::Rtt, value), (Quantity::Loss, 0.0)],
        detail: None,
        cost_bytes: 0,
    })
}

async fn open(url: &StoreUrl) -> Store {
    Store::open(url, "data1", at(0)).await.unwrap()
}

async fn rtts(store: &Store, last: u8) -> Vec<(i64, f64)> {
    let all = (Timestamp::MIN, Timestamp::MAX);
    let points = store
        .history(client(last), Quantity::Rtt, all, 1000)
        .await
        .unwrap();
    let short = points
        .iter()
        .map(|p| (p.at.as_second() - 1_700_000_000, p.value));
    short.collect()
}

async fn values_come_back_once(url: &StoreUrl) {
    let store = open(url).await;
    let batch = [known(1), rtt(1, 5, 0.01), rtt(1, 6, 0.02)];
    store.write(&batch).await.unwrap();
    store.write(&batch).await.unwrap();
    store.close().await;
    let store = open(url).await;
    assert_eq!(rtts(&store, 1).await, [(5, 0.01), (6, 0.02)]);
    assert_eq!(rtts(&store, 2).await, []);
    let latest = store
        .history(client(1), Quantity::Rtt, (at(0), at(9)), 1)
        .await
        .unwrap();
    assert_eq!((latest.len(), latest[0].value), (1, 0.02));
}

async fn the_latest_values_are_read_in_order(url: &StoreUrl) {
    let store = open(url).await;
    let mut batch = vec![known(1), known(2), known(3)];
    for second in 0..20 {
        for last in 1..=3 {
            batch.push(rtt(last, i64::from(second), f64::from(second)));
        }
    }
    store.write(&batch).await.unwrap();
    let first = store.latest("", 2, 10, at(100)).await.unwrap();
    let of = |last, points: &[advisor::store::HistoryPoint]| -> Vec<f64> {
        let rtts = points
            .iter()
            .filter(|p| p.client == client(last) && p.quantity == Quantity::Rtt);
        rtts.map(|p| p.value).collect()
    };
    let expected: Vec<f64> = (10..20).map(f64::from).collect();
    assert_eq!((of(1, &first), of(2, &first)), (expected.clone(), expected));
    let next = store.latest("192.0.2.2", 2, 3, at(100)).await.unwrap();
    assert_eq!(of(3, &next), [17.0, 18.0, 19.0]);
    assert!(of(1, &next).is_empty());
}

async fn a_value_from_the_future_hides_no_other(url: &StoreUrl) {
    let store = open(url).await;
    // A wrong clock wrote the first three.
    let mut batch = vec![known(1)];
    batch.extend((0..3).map(|n| rtt(1, 1_000_000 + n, 9.0)));
    batch.extend((0..2).map(|n| rtt(1, n, 1.0)));
    store.write(&batch).await.unwrap();
    let latest = store.latest("", 10, 3, at(50)).await.unwrap();
    let rtts: Vec<f64> = latest
        .iter()
        .filter(|p| p.quantity == Quantity::Rtt)
        .map(|p| p.value)
        .collect();
    assert_eq!(rtts, [9.0, 1.0, 1.0]);
}

async fn old_values_become_averages(url: &StoreUrl) {
    let store = open(url).await;
    let hour = Duration::from_secs(3600);
    let ages = HistoryConfig {
        single: 2 * hour,
        hours: 48 * hour,
        days: 240 * hour,
    };
    // 1 700 000 000 lies 800 s after a full hour.
    let batch = [
        rtt(1, 0, 1.0),
        rtt(1, 1000, 3.0),
        rtt(1, 3000, 8.0),
        rtt(1, 20_000, 7.0),
    ];
    store.write(&batch).await.unwrap();
    for _ in 0..2 {
        store.thin(at(21_000), &ages).await.unwrap();
        assert_eq!(
            rtts(&store, 1).await,
            [(-800, 2.0), (2800, 8.0), (20_000, 7.0)]
        );
    }
    // A value that arrives late joins the average with its weight.
    store.write(&[rtt(1, 30, 5.0)]).await.unwrap();
    store.thin(at(21_000), &ages).await.unwrap();
    assert_eq!(
        rtts(&store, 1).await,
        [(-800, 3.0), (2800, 8.0), (20_000, 7.0)]
    );
    store.thin(at(4 * 86_400), &ages).await.unwrap();
    let days = rtts(&store, 1).await;
    assert_eq!(days.len(), 2, "{days:?}");
    // Three samples of 3, one of 8 in the first day; 22:13 begins it.
    assert!(
        days.iter()
            .any(|(_, value)| (value - 17.0 / 4.0).abs() < 1e-9),
        "{days:?}"
    );
    store.thin(at(30 * 86_400), &ages).await.unwrap();
    assert_eq!(rtts(&store, 1).await, []);
}

async fn clients_come_back_and_are_forgotten(url: &StoreUrl) {
    let store = open(url).await;
    let interval = Some(Duration::from_secs(600));
    let chosen = [("ping", interval), ("route", None)].into_iter().collect();
    let written = StoredClient {
        client: "2001:db8::1".parse().unwrap(),
        source: "log".to_owned(),
        added: at(1),
        seen: at(2),
        asked: Some(at(3)),
        asked_bytes: 1 << 40,
        tests: Some(chosen),
    };
    let entry = StoreEntry::Client(written.clone());
    store
        .write(&[known(1), entry, rtt(1, 1, 1.0)])
        .await
        .unwrap();
    let all = store.clients("", 10).await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1], written);
    let first = store.clients("", 1).await.unwrap();
    assert_eq!(first, all[..1], "in parts");
    let rest = store.clients(&first[0].client.to_string(), 9).await;
    assert_eq!(rest.unwrap(), all[1..]);
    store.write(&[StoreEntry::Forget(client(1))]).await.unwrap();
    assert_eq!(store.clients("", 10).await.unwrap(), [written]);
    assert_eq!(rtts(&store, 1).await, []);
}

async fn servers_share_a_database_without_seeing_each_other(url: &StoreUrl) {
    let one = open(url).await;
    let other = Store::open(url, "data2", at(0)).await.unwrap();
    one.write(&[known(1), rtt(1, 1, 1.0)]).await.unwrap();
    assert!(other.clients("", 10).await.unwrap().is_empty());
    assert_eq!(rtts(&other, 1).await, []);
    other.write(&[known(1), rtt(1, 1, 2.0)]).await.unwrap();
    assert_eq!(rtts(&one, 1).await, [(1, 1.0)]);
    other.write(&[StoreEntry::Forget(client(1))]).await.unwrap();
    assert_eq!(one.clients("", 10).await.unwrap().len(), 1);
}

async fn a_lease_has_one_holder(url: &StoreUrl) {
    let store = open(url).await;
    let minute = Duration::from_secs(60);
    let take = async |holder: &str, now| store.take_lease("r", holder, now, minute).await.unwrap();
    let first = take("a", at(0)).await.unwrap();
    assert_eq!(take("b", at(59)).await, None);
    // A lease that was not given back ends by itself.
    let second = take("b", at(60)).await.unwrap();
    store.release_lease(&first).await.unwrap();
    assert_eq!(
        take("c", at(61)).await,
        None,
        "the first holder lost it before"
    );
    store.release_lease(&second).await.unwrap();
    assert!(take("c", at(61)).await.is_some());
    // The clock was set back far: the lease of the other time does not count.
    let back = i64::try_from(LONGEST_LEASE.as_secs()).unwrap() * 3;
    assert!(take("d", at(-back)).await.is_some());
    // Many at once: one wins.
    let takers = (0..8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let holder = format!("h{n}");
            store
                .take_lease("many", &holder, at(0), minute)
                .await
                .unwrap()
                .is_some()
        })
    });
    let takers: Vec<_> = takers.collect();
    let mut winners = 0;
    for taker in takers {
        winners += usize::from(taker.await.unwrap());
    }
    assert_eq!(winners, 1);
}

async fn the_detail_that_was_written_last_counts(url: &StoreUrl) {
    let store = open(url).await;
    let detail = |seconds, text: &str| {
        StoreEntry::Measured(Measurement {
            client: client(1),
            test: "route".to_owned(),
            at: at(seconds),
            values: Vec::new(),
            detail: Some(serde_json::json!({ "hops": text })),
            cost_bytes: 0,
        })
    };
    // The clock was set back in between.
    store
        .write(&[detail(100, "old\u{0}"), detail(5, "new")])
        .await
        .unwrap();
    let details = store.details(client(1)).await.unwrap();
    let expected = serde_json::json!({ "hops": "new" });
    assert_eq!(details, [("route".to_owned(), at(5), expected)]);
}

/// Tables as the first version made them, with clients whose tests are lists of names.
async fn lists_of_tests_of_the_first_version_are_kept(url: &StoreUrl) {
    open(url).await.close().await;
    let address = match url {
        StoreUrl::Sqlite(path) => format!("sqlite://{}", path.display()),
        StoreUrl::Postgres(address) => address.clone(),
    };
    let mut database = sqlx::AnyConnection::connect(&address).await.unwrap();
    let old = [
        (1, Some(r#"["ping","path-check_2.x","route"]"#)),
        (2, Some("[]")),
        (3, Some(r#"["ping"]"#)),
        (4, None),
    ];
    for (last, tests) in old {
        sqlx::query(
            "INSERT INTO clients (server, client, source, added_ms, seen_ms, asked_bytes, tests) \
             VALUES ('data1', $1, 'api', 0, 0, 0, $2)",
        )
        .bind(client(last).to_string())
        .bind(tests)
        .execute(&mut database)
        .await
        .unwrap();
    }
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version > 1")
        .execute(&mut database)
        .await
        .unwrap();
    database.close().await.unwrap();
    let store = open(url).await;
    let tests = store.clients("", 10).await.unwrap().into_iter();
    let tests: Vec<Option<ChosenTests>> = tests.map(|client| client.tests).collect();
    let chosen = |names: &[&str]| Some(names.iter().map(|name| (*name, None)).collect());
    let expected = [
        chosen(&["ping", "path-check_2.x", "route"]),
        chosen(&[]),
        chosen(&["ping"]),
        None,
    ];
    assert_eq!(tests, expected);
}
