//! Which sessions share the ssh logins of a run. Some servers confuse the sessions of one login.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The sessions that share a login, those of each server in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct ChannelPlaces(Mutex<BTreeMap<String, Vec<Weak<()>>>>);

/// A session's place in a login that sessions share. It ends when it is dropped.
#[derive(Debug, Clone)]
pub struct ChannelPlace(Arc<()>);

impl ChannelPlaces {
    /// A place in the login at `server`; with `alone`, only if no other session has one.
    pub(super) fn take(&self, server: String, alone: bool) -> Option<ChannelPlace> {
        let mut places = self.0.lock();
        let places = places.entry(server).or_default();
        places.retain(|place| place.strong_count() > 0);
        if alone && !places.is_empty() {
            return None;
        }
        let place = Arc::new(());
        places.push(Arc::downgrade(&place));
        Some(ChannelPlace(place))
    }

    /// Whether no session has had its place for longer.
    pub(super) fn is_first(&self, server: &str, place: &ChannelPlace) -> bool {
        let places = self.0.lock();
        let mut living = places
            .get(server)
            .into_iter()
            .flatten()
            .filter(|place| place.strong_count() > 0);
        living
            .next()
            .is_some_and(|first| Weak::as_ptr(first) == Arc::as_ptr(&place.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_began_first_may_be_alone() {
        let places = ChannelPlaces::default();
        let take = |alone| places.take("h".to_owned(), alone);
        let first = take(true).unwrap();
        assert!(take(true).is_none() && places.take("i".to_owned(), true).is_some());
        let second = take(false).unwrap();
        assert!(places.is_first("h", &first) && !places.is_first("h", &second));
        drop(first);
        assert!(places.is_first("h", &second));
        drop(second);
        assert!(take(true).is_some());
    }
}
