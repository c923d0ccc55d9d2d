//! Leases and results: a job has one holder, and one result.

use std::collections::BTreeSet;
use std::time::Duration;

use queue::decisions::lease::LeaseTime;
use queue::decisions::retry::{AttemptEnd, StopReason};
use queue::store::{JobState, QueueError, TransferQueue};

use crate::support::{MINUTE, QueueFixture, identity, job};

#[tokio::test]
async fn many_workers_at_once_never_take_the_same_job() {
    let Some(fixture) = QueueFixture::new("many_workers_at_once_never_take_the_same_job").await
    else {
        return;
    };
    let jobs: Vec<_> = (0..120)
        .map(|n| job("anna", &format!("ftp://h/{n}")))
        .collect();
    let ids = fixture.queue.submit(&jobs, Duration::ZERO).await.unwrap();
    let workers = (0..6).map(|n| {
        let queue = TransferQueue::new(&fixture.url).unwrap();
        tokio::spawn(async move {
            let worker = identity(&format!("w{n}"));
            let mut taken = Vec::new();
            loop {
                let jobs = queue
                    .claim(&worker, 1, LeaseTime::new(MINUTE))
                    .await
                    .unwrap();
                match jobs.first() {
                    Some(job) => taken.push(job.id),
                    None => return taken,
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.unwrap());
    }
    assert_eq!(taken.len(), ids.len());
    assert_eq!(
        taken.into_iter().collect::<BTreeSet<_>>(),
        ids.into_iter().collect()
    );
}

#[tokio::test]
async fn a_job_whose_lease_ended_is_another_workers() {
    let Some(fixture) = QueueFixture::new("a_job_whose_lease_ended_is_another_workers").await
    else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    let first = fixture.claim("a", 1).await.remove(0);
    assert!(fixture.claim("b", 1).await.is_empty());
    fixture.end_leases().await;
    let second = fixture.claim("b", 1).await.remove(0);
    assert_eq!((second.id, second.number), (id, 2));
    assert!(fixture.renew("a", &first).await.is_empty());
    // The late failure of the first says nothing about the second.
    fixture.finish("a", &first, AttemptEnd::Exited(5)).await;
    let (state, outcomes) = fixture.state(id).await;
    assert_eq!(
        (state, outcomes.join(" ").as_str()),
        (JobState::Running, "failed running")
    );
    fixture.finish("b", &second, AttemptEnd::Exited(0)).await;
    let (state, outcomes) = fixture.state(id).await;
    assert_eq!(
        (state, outcomes.join(" ").as_str()),
        (JobState::Done, "failed done")
    );
}

#[tokio::test]
async fn a_renewed_lease_goes_on() {
    let Some(fixture) = QueueFixture::new("a_renewed_lease_goes_on").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    let first = fixture.claim("a", 1).await.remove(0);
    for _ in 0..3 {
        fixture.end_leases().await;
        let kept = fixture.renew("a", &first).await;
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(id, false)]);
        assert!(fixture.claim("b", 1).await.is_empty());
    }
    fixture.end_leases().await;
    assert_eq!(fixture.claim("b", 1).await.len(), 1);
}

#[tokio::test]
async fn a_database_whose_clock_is_set_gives_no_job_to_a_second_worker() {
    for days in [1, -1] {
        let Some(fixture) = QueueFixture::new("a_database_whose_clock_is_set").await else {
            return;
        };
        let id = fixture.submit("anna", "ftp://h/x").await;
        let lost = fixture.submit("anna", "ftp://h/y").await;
        let held = fixture.claim("a", 1).await.remove(0);
        assert_eq!(fixture.claim("dead", 1).await.len(), 1);
        fixture.set_clock(days).await;
        assert!(fixture.claim("b", 2).await.is_empty(), "{days} days");
        // It is not another worker's, so its worker keeps it.
        let kept = fixture.renew("a", &held).await;
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(id, false)]);
        // That of a dead worker is free after the length of a lease, and not a day later.
        fixture.end_leases().await;
        assert!(!fixture.renew("a", &held).await.is_empty());
        let taken = fixture.claim("b", 2).await;
        let taken: Vec<_> = taken.iter().map(|job| job.id).collect();
        assert_eq!(taken, [lost], "{days} days");
    }
}

#[tokio::test]
async fn owners_take_turns_also_after_the_clock_of_the_database_was_set_back() {
    let Some(fixture) = QueueFixture::new("owners_take_turns_also_after").await else {
        return;
    };
    for n in 0..3 {
        fixture.submit("anna", &format!("ftp://h/a{n}")).await;
        fixture.submit("bert", &format!("ftp://h/b{n}")).await;
    }
    let mut owners = Vec::new();
    for turn in 0..6 {
        if turn == 2 {
            // By the new clock, both were served in the future, and all jobs submitted there.
            fixture.set_clock(-1).await;
        }
        let job = fixture.claim("a", 1).await.remove(0);
        fixture.finish("a", &job, AttemptEnd::Exited(0)).await;
        owners.push(job.copy.unwrap().parts().owner.clone());
    }
    assert_eq!(owners.join(" "), "anna bert anna bert anna bert");
}

#[tokio::test]
async fn a_wait_is_counted_anew_when_the_clock_of_the_database_is_set_back() {
    let Some(fixture) = QueueFixture::new("a_wait_is_counted_anew").await else {
        return;
    };
    let hour = Duration::from_secs(3600);
    let later = [job("anna", "ftp://h/x")];
    let id = fixture.queue.submit(&later, hour).await.unwrap()[0];
    fixture.set_clock(-1).await;
    assert!(fixture.claim("a", 1).await.is_empty());
    let (row, _) = fixture.queue.job(id).await.unwrap().unwrap();
    let wait = row.not_before - row.now;
    assert!((3500.0..=3600.0).contains(&wait), "{wait} s");
}

#[tokio::test]
async fn a_late_success_ends_a_job_that_nobody_has_begun_again() {
    let Some(fixture) = QueueFixture::new("a_late_success").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    let first = fixture.claim("a", 1).await.remove(0);
    fixture.end_leases().await;
    // Another worker looks, and has no place for it.
    assert!(fixture.claim("b", 0).await.is_empty());
    assert_eq!(fixture.state(id).await.0, JobState::Waiting);
    fixture.finish("a", &first, AttemptEnd::Exited(0)).await;
    let (state, outcomes) = fixture.state(id).await;
    assert_eq!(
        (state, outcomes.join(" ").as_str()),
        (JobState::Done, "done")
    );
    assert!(fixture.claim("b", 1).await.is_empty());
}

#[tokio::test]
async fn renewals_bring_progress_and_orders_and_give_back_what_was_never_begun() {
    let Some(fixture) = QueueFixture::new("renewals_bring_progress_and_orders").await else {
        return;
    };
    let known = fixture.submit("anna", "ftp://h/x").await;
    let unknown = fixture.submit("anna", "ftp://h/y").await;
    let mut jobs = fixture.claim("a", 2).await;
    // The answer about the second was lost.
    jobs.truncate(1);
    assert_eq!(fixture.queue.cancel(&[known]).await.unwrap(), [known]);
    let kept = fixture.renew("a", &jobs[0]).await;
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(known, true)]);
    assert_eq!(fixture.state(unknown).await.0, JobState::Waiting);
    let (row, _) = fixture.queue.job(known).await.unwrap().unwrap();
    assert_eq!(row.progress.done_bytes, Some(1));
    let stopped = AttemptEnd::Stopped(StopReason::Cancelled);
    fixture.finish("a", &jobs[0], stopped).await;
    assert_eq!(fixture.state(known).await.0, JobState::Cancelled);
}

#[tokio::test]
async fn a_new_process_of_a_worker_gives_back_what_the_old_one_had() {
    let Some(fixture) = QueueFixture::new("a_new_process_of_a_worker").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    let other = fixture.submit("anna", "ftp://h/y").await;
    fixture.claim("a", 1).await;
    fixture.claim("b", 1).await;
    let mut again = identity("a");
    again.session = "another".to_owned();
    assert_eq!(fixture.queue.release_earlier(&again).await.unwrap(), 1);
    assert_eq!(
        fixture.state(id).await,
        (JobState::Waiting, vec!["lost".to_owned()])
    );
    assert_eq!(fixture.state(other).await.0, JobState::Running);
}

#[tokio::test]
async fn failures_are_repeated_as_often_as_the_job_says() {
    let Some(fixture) = QueueFixture::new("failures_are_repeated").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    let first = fixture.claim("a", 1).await.remove(0);
    fixture.finish("a", &first, AttemptEnd::Exited(5)).await;
    // It waits for some time, unless somebody asks for it.
    assert!(fixture.claim("a", 1).await.is_empty());
    fixture
        .alter("UPDATE longhaul_queue.jobs SET not_before = clock_timestamp()")
        .await;
    let second = fixture.claim("a", 1).await.remove(0);
    fixture.finish("a", &second, AttemptEnd::Exited(5)).await;
    assert_eq!(fixture.state(id).await.0, JobState::Failed);
    assert_eq!(fixture.queue.retry(&[id, 999]).await.unwrap(), [id]);
    let third = fixture.claim("a", 1).await.remove(0);
    assert_eq!(third.number, 3);
    fixture.finish("a", &third, AttemptEnd::Exited(0)).await;
    assert_eq!(fixture.state(id).await.0, JobState::Done);
    let (row, _) = fixture.queue.job(id).await.unwrap().unwrap();
    assert_eq!(row.progress.done_bytes, Some(10));
    assert!(fixture.queue.retry(&[id]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_job_that_kills_its_workers_does_not_do_so_for_ever() {
    let Some(fixture) = QueueFixture::new("a_job_that_kills_its_workers").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    for _ in 0..queue::decisions::retry::MOST_LOSSES {
        assert_eq!(fixture.claim("a", 1).await.len(), 1);
        fixture.end_leases().await;
    }
    assert!(fixture.claim("a", 1).await.is_empty());
    assert_eq!(fixture.state(id).await.0, JobState::Failed);
}

#[tokio::test]
async fn tables_are_made_once_and_those_of_a_later_version_are_left_alone() {
    let Some(fixture) = QueueFixture::new("tables_are_made_once").await else {
        return;
    };
    fixture.alter("DROP SCHEMA longhaul_queue CASCADE").await;
    let makers = (0..6).map(|_| {
        let queue = TransferQueue::new(&fixture.url).unwrap();
        tokio::spawn(async move { queue.prepare().await })
    });
    let makers: Vec<_> = makers.collect();
    for maker in makers {
        maker.await.unwrap().unwrap();
    }
    fixture
        .alter("UPDATE longhaul_queue._sqlx_migrations SET version = version + 1000")
        .await;
    let later = fixture.queue.prepare().await;
    assert!(
        matches!(later, Err(QueueError::Migrate { .. })),
        "{later:?}"
    );
}

#[tokio::test]
async fn rows_that_others_wrote_are_checked_like_jobs() {
    let Some(fixture) = QueueFixture::new("rows_that_others_wrote").await else {
        return;
    };
    let id = fixture.submit("anna", "ftp://h/x").await;
    fixture
        .alter("UPDATE longhaul_queue.jobs SET options = ARRAY['--json', '-n']")
        .await;
    let claimed = fixture.claim("a", 1).await.remove(0);
    assert!(claimed.id == id && claimed.copy.is_err());
}
