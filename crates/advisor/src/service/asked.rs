//! Tests that somebody asked for by name: why one waits, and how it ended. The last ones are kept.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use jiff::Timestamp;

use crate::measurement::Quantity;

/// Most tests that are remembered; the oldest questions make room.
const MOST: usize = 1000;

/// The state of a test that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum AskedTest {
    /// It has not ended; `Some`: why it does not start.
    Waiting(Option<String>),
    /// It ended with these values.
    Measured(Timestamp, Vec<(Quantity, f64)>),
    /// It ended without a result: the reason.
    Failed(Timestamp, String),
}

/// The tests that were asked for, by client and name.
#[derive(Debug, Default)]
pub(super) struct AskedTests {
    tests: BTreeMap<(IpAddr, String), AskedTest>,
    /// The same ones, those that were asked for first at the front.
    order: VecDeque<(IpAddr, String)>,
}

impl AskedTests {
    /// Notes that a test was asked for.
    pub(super) fn asked(&mut self, client: IpAddr, test: &str) {
        let key = (client, test.to_owned());
        if self
            .tests
            .insert(key.clone(), AskedTest::Waiting(None))
            .is_some()
        {
            self.order.retain(|known| *known != key);
        }
        self.order.push_back(key);
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.tests.remove(&oldest);
            }
        }
    }

    /// Notes why a test does not start, if somebody waits for it.
    pub(super) fn waits(&mut self, client: IpAddr, test: &str, reason: &str) {
        if let Some(AskedTest::Waiting(why)) = self.tests.get_mut(&(client, test.to_owned())) {
            *why = Some(reason.to_owned());
        }
    }

    /// Notes the end of a test, if somebody waits for it.
    pub(super) fn ended(&mut self, client: IpAddr, test: &str, end: AskedTest) {
        if let Some(known @ AskedTest::Waiting(_)) = self.tests.get_mut(&(client, test.to_owned()))
        {
            *known = end;
        }
    }

    /// The tests of a client that were asked for, by name.
    pub(super) fn of(&self, client: IpAddr) -> Vec<(String, AskedTest)> {
        let first = (client, String::new());
        let from = self.tests.range(first..);
        from.take_while(|((of, _), _)| *of == client)
            .map(|((_, test), state)| (test.clone(), state.clone()))
            .collect()
    }

    /// Forgets a client.
    pub(super) fn forget(&mut self, client: IpAddr) {
        self.tests.retain(|(of, _), _| *of != client);
        self.order.retain(|(of, _)| *of != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn only_a_test_that_was_asked_for_is_remembered_until_it_is_asked_for_again() {
        let mut asked = AskedTests::default();
        let failed = AskedTest::Failed(Timestamp::UNIX_EPOCH, "no answer".to_owned());
        asked.ended(client(1), "ping", failed.clone());
        assert!(asked.of(client(1)).is_empty());
        asked.asked(client(1), "ping");
        asked.waits(client(1), "ping", "a transfer runs");
        let waiting = AskedTest::Waiting(Some("a transfer runs".to_owned()));
        assert_eq!(asked.of(client(1)), [("ping".to_owned(), waiting)]);
        asked.ended(client(1), "ping", failed.clone());
        // A later periodic run is nobody's.
        asked.ended(
            client(1),
            "ping",
            AskedTest::Measured(Timestamp::UNIX_EPOCH, Vec::new()),
        );
        assert_eq!(asked.of(client(1)), [("ping".to_owned(), failed)]);
        asked.asked(client(1), "ping");
        assert_eq!(asked.of(client(1))[0].1, AskedTest::Waiting(None));
        asked.asked(client(2), "ping");
        asked.forget(client(1));
        assert!(asked.of(client(1)).is_empty() && asked.of(client(2)).len() == 1);
    }

    #[test]
    fn the_oldest_question_makes_room() {
        let mut asked = AskedTests::default();
        for number in 0..=MOST {
            asked.asked(client(1), &format!("test{number}"));
        }
        assert_eq!((asked.tests.len(), asked.order.len()), (MOST, MOST));
        assert!(asked.of(client(1)).iter().all(|(test, _)| test != "test0"));
    }
}
