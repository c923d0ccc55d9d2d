use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::*;

#[test]
fn a_panic_while_locked_does_not_make_the_data_unusable() {
    let mutex = Mutex::new(1);
    let held = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("while it is locked");
    }));
    assert!(held.is_err() && mutex.is_poisoned());
    *lock(&mutex) += 1;
    let notice = Condvar::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            *lock(&mutex) += 1;
            notice.notify_all();
        });
        let mut guard = lock(&mutex);
        while *guard < 3 {
            guard = wait_notified(&notice, guard);
        }
    });
    assert_eq!(into_unlocked(mutex), 3);
}
