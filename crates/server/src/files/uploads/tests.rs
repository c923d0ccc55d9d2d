use std::os::unix::net::UnixStream;

use super::*;

const FILE: Inode = (1, 2);

fn storer(uploader: Uploader) -> (UploadClient, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    let storer = UploadClient {
        uploader,
        control_socket: Arc::new(ControlSocket::of(server.as_fd()).unwrap()),
        control: Arc::default(),
    };
    (storer, client)
}

fn user(name: &str) -> (UploadClient, UnixStream) {
    storer(Uploader::User(name.to_owned()))
}

fn anonymous(from: [u8; 4]) -> (UploadClient, UnixStream) {
    storer(Uploader::Anonymous(from.into()))
}

/// A newcomer's view of an owner after so much time.
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
fn a_silent_owner_of_the_same_account_gives_way_after_a_watch() {
    use OwnerVerdict::{MustYield, Undecided};
    let times = [Duration::ZERO, SETTLE, WATCH - LOOK, WATCH];
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    assert_eq!(
        verdicts(&owner, &newcomer, &times),
        [Undecided, Undecided, Undecided, MustYield]
    );
    let ((owner, _a), (newcomer, _b)) = (anonymous([10, 0, 0, 1]), anonymous([10, 0, 0, 1]));
    assert_eq!(verdicts(&owner, &newcomer, &times)[3], MustYield);
}

#[test]
fn an_owner_of_another_account_stays() {
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
fn an_owner_of_the_same_account_may_end_what_has_come_whole() {
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    let uploads = Arc::new(UploadRegistry::default());
    let lease = uploads
        .register(FILE, WriteLockKind::Exclusive, &owner)
        .unwrap();
    lease.upload().mark_received();
    let mut watch = OwnerWait::new(&uploads, WriteLockKind::Exclusive, &newcomer);
    for after in [Duration::ZERO, WATCH, 2 * WATCH] {
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
fn nobody_is_stopped_while_another_owner_stays() {
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
fn an_owner_that_never_lets_go_is_not_waited_for_without_end() {
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
    assert!(wait.judge(&owners, begin + LONGEST).is_ok());
    assert!(wait.judge(&owners, begin + LONGEST + LOOK).is_err());
}

#[test]
fn nothing_is_kept_of_uploads_that_have_ended() {
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
fn a_change_without_an_upload_is_waited_for() {
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
fn who_takes_back_what_it_stored_keeps_others_out_or_is_not_alone() {
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
