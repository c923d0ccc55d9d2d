use std::os::unix::net::UnixStream;

use super::*;

const FILE: Inode = (1, 2);

fn storer(uploader: Uploader) -> (UploadClient, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    let storer = UploadClient {
        uploader,
        control_socket: Arc::new(ControlSocket::of(server.as_fd()).unwrap()),
        control: Arc::default(),
        bytes: ServedBytes::All,
    };
    (storer, client)
}

fn user(name: &str) -> (UploadClient, UnixStream) {
    storer(Uploader::User(name.to_owned()))
}

fn anonymous(from: [u8; 4]) -> (UploadClient, UnixStream) {
    storer(Uploader::Anonymous(std::net::IpAddr::from(from).into()))
}

/// The newcomer's verdicts about an owner after each of `times`.
fn verdicts(
    owner: &UploadClient,
    newcomer: &UploadClient,
    times: &[Duration],
) -> Vec<OwnerVerdict> {
    let uploads = Arc::new(UploadRegistry::default());
    let lease = uploads
        .register(FILE, WriteLockKind::Exclusive, owner)
        .unwrap();
    let mut wait = OwnerWait::new(&uploads, WriteLockKind::Exclusive, newcomer);
    let begin = wait.began;
    times
        .iter()
        .map(|after| wait.verdict(&lease.upload, begin + *after))
        .collect()
}

#[test]
fn a_silent_owner_of_the_same_account_must_yield_after_the_silence_limit() {
    use OwnerVerdict::{MustYield, Undecided};
    let times = [
        Duration::ZERO,
        SETTLING_TIME,
        SILENCE_LIMIT - CHECK_INTERVAL,
        SILENCE_LIMIT,
    ];
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    assert_eq!(
        verdicts(&owner, &newcomer, &times),
        [Undecided, Undecided, Undecided, MustYield]
    );
    let ((owner, _a), (newcomer, _b)) = (anonymous([10, 0, 0, 1]), anonymous([10, 0, 0, 1]));
    assert_eq!(verdicts(&owner, &newcomer, &times)[3], MustYield);
}

#[test]
fn an_owner_of_another_account_keeps_the_file() {
    for ((owner, _a), (newcomer, _b)) in [
        (user("ann"), user("bob")),
        (anonymous([10, 0, 0, 1]), anonymous([10, 0, 0, 2])),
        (user("ann"), anonymous([10, 0, 0, 1])),
    ] {
        assert_eq!(
            verdicts(&owner, &newcomer, &[Duration::ZERO]),
            [OwnerVerdict::KeepsFile]
        );
    }
}

#[test]
fn an_owner_that_has_received_everything_may_finish() {
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    let uploads = Arc::new(UploadRegistry::default());
    let lease = uploads
        .register(FILE, WriteLockKind::Exclusive, &owner)
        .unwrap();
    lease.upload().mark_received();
    let mut watch = OwnerWait::new(&uploads, WriteLockKind::Exclusive, &newcomer);
    for after in [Duration::ZERO, SILENCE_LIMIT, 2 * SILENCE_LIMIT] {
        let verdict = watch.verdict(&lease.upload, watch.began + after);
        assert_eq!(verdict, OwnerVerdict::Undecided);
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.wait_until_free(FILE));
        drop(lease);
        waiting.join().unwrap().unwrap();
    });
    assert!(!owner.control.is_cancelled());
}

#[test]
fn no_owner_is_stopped_while_another_keeps_the_file() {
    let ((dead, line), (alive, _b), (newcomer, _c)) = (user("ann"), user("bob"), user("ann"));
    let uploads = Arc::new(UploadRegistry::default());
    let _first = uploads
        .register(FILE, WriteLockKind::Shared, &dead)
        .unwrap();
    let _second = uploads
        .register(FILE, WriteLockKind::Shared, &alive)
        .unwrap();
    drop(line);
    let mut wait = OwnerWait::new(&uploads, WriteLockKind::Exclusive, &newcomer);
    assert!(wait.wait_until_free(FILE).is_err());
    assert!(!dead.control.is_cancelled() && !alive.control.is_cancelled());
    assert!(
        OwnerWait::new(&uploads, WriteLockKind::Shared, &newcomer)
            .wait_until_free(FILE)
            .is_ok()
    );
}

#[test]
fn the_wait_for_an_owner_is_bounded() {
    let ((owner, line), (newcomer, _b)) = (user("ann"), user("bob"));
    drop(line);
    let uploads = Arc::new(UploadRegistry::default());
    let lease = uploads
        .register(FILE, WriteLockKind::Exclusive, &owner)
        .unwrap();
    let mut wait = OwnerWait::new(&uploads, WriteLockKind::Exclusive, &newcomer);
    let begin = wait.began;
    let owners = [Arc::clone(lease.upload())];
    assert!(wait.judge(&owners, begin).is_ok());
    assert!(owner.control.is_cancelled() && lease.upload().was_taken_over());
    assert!(wait.judge(&owners, begin + MAX_WAIT).is_ok());
    assert!(
        wait.judge(&owners, begin + MAX_WAIT + CHECK_INTERVAL)
            .is_err()
    );
}

#[test]
fn ended_uploads_are_removed_from_the_registry() {
    let (owner, _line) = user("ann");
    let uploads = Arc::new(UploadRegistry::default());
    let lease = uploads
        .register(FILE, WriteLockKind::Exclusive, &owner)
        .unwrap();
    assert!(uploads.is_being_written(FILE));
    assert!(
        uploads
            .register(FILE, WriteLockKind::Shared, &owner)
            .is_none()
    );
    drop(lease);
    assert!(!uploads.is_being_written(FILE) && uploads.open().is_empty());
}

#[test]
fn an_upload_waits_for_a_short_change() {
    let (newcomer, _line) = user("ann");
    let uploads = Arc::new(UploadRegistry::default());
    let change = uploads.exclude_uploads(FILE).unwrap();
    assert!(uploads.exclude_uploads(FILE).is_none());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| {
            OwnerWait::new(&uploads, WriteLockKind::Shared, &newcomer).wait_until_free(FILE)
        });
        drop(change);
        wait.join().unwrap().unwrap();
    });
}

#[test]
fn a_rollback_excludes_other_uploads_or_is_refused() {
    let ((first, _a), (second, _b)) = (user("ann"), user("bob"));
    let uploads = Arc::new(UploadRegistry::default());
    let enter = |by| uploads.register(FILE, WriteLockKind::Shared, by);
    let lease = enter(&first).unwrap();
    assert!(lease.begin_rollback());
    assert!(enter(&second).is_none());
    let mut watch = OwnerWait::new(&uploads, WriteLockKind::Shared, &second);
    let verdict = watch.verdict(&lease.upload, watch.began);
    assert_eq!(verdict, OwnerVerdict::Undecided);
    drop(lease);
    let (one, other) = (enter(&first).unwrap(), enter(&second).unwrap());
    assert!(!other.begin_rollback());
    drop(other);
    assert!(!one.begin_rollback());
    assert!(enter(&second).is_some());
}
