//! Limits over the whole fleet, fairness, and the estimate of the end.

use std::time::Duration;

use queue::decisions::fleet::DayHours;
use queue::decisions::retry::AttemptEnd;
use queue::store::{JobFilter, JobState, LimitChange, QueueError};

use crate::support::{QueueFixture, job};

#[tokio::test]
async fn sessions_of_an_endpoint_are_counted_over_all_workers() {
    let Some(fixture) = QueueFixture::new("sessions_of_an_endpoint").await else {
        return;
    };
    let change = LimitChange {
        sessions: Some(Some(6)),
        rate: Some(Some(1000)),
        ..LimitChange::default()
    };
    fixture.queue.set_limit("h", &change).await.unwrap();
    for n in 0..4 {
        fixture.submit("anna", &format!("ftp://H/{n}")).await;
    }
    let elsewhere = fixture.submit("anna", "ftp://other/x").await;
    let first = fixture.claim("a", 1).await.remove(0);
    assert_eq!((first.sessions, first.rate), (4, Some(1000)));
    // Two sessions are left, and half of the rate.
    let second = fixture.claim("b", 1).await.remove(0);
    assert_eq!((second.sessions, second.rate), (2, Some(500)));
    // The endpoint is full, and holds nothing else back.
    let third = fixture.claim("c", 9).await;
    assert_eq!(
        third.iter().map(|job| job.id).collect::<Vec<_>>(),
        [elsewhere]
    );
    fixture.finish("a", &first, AttemptEnd::Exited(0)).await;
    assert_eq!(fixture.claim("c", 9).await.len(), 1);
    // Without the limit all that is left starts.
    let change = LimitChange {
        sessions: Some(None),
        rate: Some(None),
        ..LimitChange::default()
    };
    fixture.queue.set_limit("h", &change).await.unwrap();
    assert!(fixture.queue.fleet().await.unwrap().limits.is_empty());
    assert_eq!(fixture.claim("c", 9).await.len(), 1);
}

#[tokio::test]
async fn outside_of_its_hours_an_endpoint_is_left_alone() {
    let Some(fixture) = QueueFixture::new("outside_of_its_hours").await else {
        return;
    };
    fixture.submit("anna", "ftp://h/x").await;
    // A span that begins in two hours and lasts one, by the server's clock in that zone.
    let hours = |from: u16| {
        let from = from % 1440;
        DayHours::new(from, (from + 60) % 1440)
    };
    let set = async |hours| {
        let change = LimitChange {
            hours: Some(hours),
            zone: Some("Asia/Tokyo".to_owned()),
            ..LimitChange::default()
        };
        fixture.queue.set_limit("h", &change).await.unwrap();
        fixture.queue.fleet().await.unwrap().limits[0].minute
    };
    let now = set(hours(0)).await;
    set(hours(now + 120)).await;
    assert!(fixture.claim("a", 1).await.is_empty());
    set(hours(now + 1440 - 30)).await;
    assert_eq!(fixture.claim("a", 1).await.len(), 1);
    let change = LimitChange {
        zone: Some("Middle/Earth".to_owned()),
        ..LimitChange::default()
    };
    let unknown = fixture.queue.set_limit("h", &change).await;
    assert!(matches!(unknown, Err(QueueError::Zone(_))));
}

#[tokio::test]
async fn owners_take_turns_whoever_came_first() {
    let Some(fixture) = QueueFixture::new("owners_take_turns").await else {
        return;
    };
    for (owner, jobs) in [("anna", 20), ("ben", 2), ("cleo", 1)] {
        for n in 0..jobs {
            fixture.submit(owner, &format!("ftp://h/{n}")).await;
        }
    }
    let mut owners = Vec::new();
    for _ in 0..6 {
        let job = fixture.claim("a", 1).await.remove(0);
        owners.push(job.copy.unwrap().parts().owner.clone());
    }
    assert_eq!(owners.join(" "), "anna ben cleo anna ben anna");
}

#[tokio::test]
async fn a_late_start_waits_and_lists_have_parts() {
    let Some(fixture) = QueueFixture::new("a_late_start_waits").await else {
        return;
    };
    let hour = Duration::from_secs(3600);
    let late = fixture
        .queue
        .submit(&[job("anna", "ftp://h/x")], hour)
        .await;
    let late = late.unwrap()[0];
    assert!(fixture.claim("a", 1).await.is_empty());
    let now = fixture.submit("ben", "ftp://h/y").await;
    let mut filter = JobFilter {
        most: 1,
        ..JobFilter::default()
    };
    let first = fixture.queue.jobs(&filter).await.unwrap();
    assert_eq!((first.len(), first[0].id), (1, now));
    filter.below = Some(now);
    assert_eq!(fixture.queue.jobs(&filter).await.unwrap()[0].id, late);
    filter.states = vec![JobState::Done];
    assert!(fixture.queue.jobs(&filter).await.unwrap().is_empty());
    // A job that waits is cancelled at once.
    assert_eq!(fixture.queue.cancel(&[late]).await.unwrap(), [late]);
    assert_eq!(fixture.state(late).await.0, JobState::Cancelled);
    assert_eq!(
        fixture.queue.overview().await.unwrap().jobs[&JobState::Cancelled],
        1
    );
}

#[tokio::test]
async fn the_end_is_estimated_by_what_ended_and_what_waits() {
    let Some(fixture) = QueueFixture::new("the_end_is_estimated").await else {
        return;
    };
    for n in 0..5 {
        fixture.submit("anna", &format!("ftp://h/{n}")).await;
    }
    let latest = JobFilter {
        most: 1,
        ..JobFilter::default()
    };
    let last = fixture.queue.jobs(&latest).await.unwrap()[0].id;
    assert_eq!(fixture.queue.time_left(last).await.unwrap(), None);
    let done = fixture.claim("a", 1).await.remove(0);
    fixture.finish("a", &done, AttemptEnd::Exited(0)).await;
    let lease = queue::decisions::lease::LeaseTime::new(Duration::from_secs(60));
    let worker = crate::support::identity("a");
    fixture.queue.renew(&worker, 1, lease, &[]).await.unwrap();
    // Three before it, each of one second, and itself.
    let left = fixture.queue.time_left(last).await.unwrap();
    assert_eq!(left, Some(Duration::from_secs(4)));
}
