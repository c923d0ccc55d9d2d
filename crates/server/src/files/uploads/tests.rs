use std::os::unix::net::UnixStream;

use super::*;

const FILE: Inode = (1, 2);

fn storer(uploader: Uploader) -> (Storer, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    let storer = Storer {
        uploader,
        line: Arc::new(ControlLine::of(server.as_fd()).unwrap()),
        control: Arc::default(),
    };
    (storer, client)
}

fn user(name: &str) -> (Storer, UnixStream) {
    storer(Uploader::User(name.to_owned()))
}

fn anonymous(from: [u8; 4]) -> (Storer, UnixStream) {
    storer(Uploader::Anonymous(from.into()))
}

/// A newcomer's view of an owner after so much time.
fn verdicts(owner: &Storer, newcomer: &Storer, times: &[Duration]) -> Vec<OwnerVerdict> {
    let uploads = Arc::new(Uploads::default());
    let lease = uploads.enter(FILE, Claim::Sole, owner).unwrap();
    let mut wait = OwnerWatch::new(&uploads, Claim::Sole, newcomer);
    let begin = wait.began;
    times
        .iter()
        .map(|after| wait.verdict(&lease.upload, begin + *after))
        .collect()
}

#[test]
fn a_silent_owner_of_the_same_account_gives_way_after_a_watch() {
    use OwnerVerdict::{GivesWay, Unknown};
    let times = [Duration::ZERO, SETTLE, WATCH - LOOK, WATCH];
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    assert_eq!(
        verdicts(&owner, &newcomer, &times),
        [Unknown, Unknown, Unknown, GivesWay]
    );
    let ((owner, _a), (newcomer, _b)) = (anonymous([10, 0, 0, 1]), anonymous([10, 0, 0, 1]));
    assert_eq!(verdicts(&owner, &newcomer, &times)[3], GivesWay);
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
            [OwnerVerdict::Stays]
        );
    }
}

#[test]
fn an_owner_of_the_same_account_may_end_what_has_come_whole() {
    let ((owner, _a), (newcomer, _b)) = (user("ann"), user("ann"));
    let uploads = Arc::new(Uploads::default());
    let lease = uploads.enter(FILE, Claim::Sole, &owner).unwrap();
    lease.upload().note_ending();
    let mut watch = OwnerWatch::new(&uploads, Claim::Sole, &newcomer);
    for after in [Duration::ZERO, WATCH, 2 * WATCH] {
        let verdict = watch.verdict(&lease.upload, watch.began + after);
        assert_eq!(verdict, OwnerVerdict::Unknown);
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.outlast(FILE));
        drop(lease);
        waiting.join().unwrap().unwrap();
    });
    assert!(!owner.control.cancelled());
}

#[test]
fn nobody_is_stopped_while_another_owner_stays() {
    let ((dead, line), (alive, _b), (newcomer, _c)) = (user("ann"), user("bob"), user("ann"));
    let uploads = Arc::new(Uploads::default());
    let _first = uploads.enter(FILE, Claim::Ranges, &dead).unwrap();
    let _second = uploads.enter(FILE, Claim::Ranges, &alive).unwrap();
    drop(line);
    let mut wait = OwnerWatch::new(&uploads, Claim::Sole, &newcomer);
    assert!(wait.outlast(FILE).is_err());
    assert!(!dead.control.cancelled() && !alive.control.cancelled());
    assert!(
        OwnerWatch::new(&uploads, Claim::Ranges, &newcomer)
            .outlast(FILE)
            .is_ok()
    );
}

#[test]
fn an_owner_that_never_lets_go_is_not_waited_for_without_end() {
    let ((owner, line), (newcomer, _b)) = (user("ann"), user("bob"));
    drop(line);
    let uploads = Arc::new(Uploads::default());
    let lease = uploads.enter(FILE, Claim::Sole, &owner).unwrap();
    let mut wait = OwnerWatch::new(&uploads, Claim::Sole, &newcomer);
    let begin = wait.began;
    let owners = [Arc::clone(lease.upload())];
    assert!(wait.judge(&owners, begin).is_ok());
    assert!(owner.control.cancelled() && lease.upload().was_taken_over());
    assert!(wait.judge(&owners, begin + LONGEST).is_ok());
    assert!(wait.judge(&owners, begin + LONGEST + LOOK).is_err());
}

#[test]
fn nothing_is_kept_of_uploads_that_have_ended() {
    let (owner, _line) = user("ann");
    let uploads = Arc::new(Uploads::default());
    let lease = uploads.enter(FILE, Claim::Sole, &owner).unwrap();
    assert!(uploads.is_written(FILE));
    assert!(uploads.enter(FILE, Claim::Ranges, &owner).is_none());
    drop(lease);
    assert!(!uploads.is_written(FILE) && uploads.open().is_empty());
}

#[test]
fn a_change_without_an_upload_is_waited_for() {
    let (newcomer, _line) = user("ann");
    let uploads = Arc::new(Uploads::default());
    let change = uploads.keep_away(FILE).unwrap();
    assert!(uploads.keep_away(FILE).is_none());
    std::thread::scope(|scope| {
        let wait =
            scope.spawn(|| OwnerWatch::new(&uploads, Claim::Ranges, &newcomer).outlast(FILE));
        drop(change);
        wait.join().unwrap().unwrap();
    });
}

#[test]
fn who_takes_back_what_it_stored_keeps_others_out_or_is_not_alone() {
    let ((first, _a), (second, _b)) = (user("ann"), user("bob"));
    let uploads = Arc::new(Uploads::default());
    let enter = |by| uploads.enter(FILE, Claim::Ranges, by);
    let lease = enter(&first).unwrap();
    assert!(lease.withdraw());
    assert!(enter(&second).is_none());
    let mut watch = OwnerWatch::new(&uploads, Claim::Ranges, &second);
    let verdict = watch.verdict(&lease.upload, watch.began);
    assert_eq!(verdict, OwnerVerdict::Unknown);
    drop(lease);
    let (one, other) = (enter(&first).unwrap(), enter(&second).unwrap());
    assert!(!other.withdraw());
    drop(other);
    assert!(!one.withdraw());
    assert!(enter(&second).is_some());
}
