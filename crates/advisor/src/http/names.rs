//! Addresses of clients that a request names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Most names that are looked up at one time. Each takes a thread while the system's resolver waits.
const AT_ONCE: usize = 16;

/// The reason why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameRefused {
    #[error("{0:?} is neither an address nor a name of a host")]
    Text(String),
    #[error("the name {0} has no address")]
    Unknown(String),
    #[error("the address of {0} was not found in time")]
    TimedOut(String),
    #[error("too many names are looked up now; try again later")]
    Busy,
}

/// The system's resolver, within bounds.
#[derive(Debug)]
pub(super) struct NameResolver {
    places: Arc<Semaphore>,
    time: Duration,
}

impl NameResolver {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            time,
        }
    }

    /// Addresses of a client that is named by its address or its name, canonical; at least one.
    pub(super) async fn addresses(&self, text: &str) -> Result<Vec<IpAddr>, NameRefused> {
        let text = text.trim();
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(vec![address.to_canonical()]);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !(1..=253).contains(&text.len()) || !text.chars().all(plain) {
            return Err(NameRefused::Text(text.chars().take(64).collect()));
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| NameRefused::Busy)?;
        let name = text.to_owned();
        // The resolver cannot be interrupted: its place stays taken until it returns.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((name, 0)).await;
            drop(place);
            found.map(|found| {
                let canonical = found.map(|address| address.ip().to_canonical());
                canonical.collect::<Vec<_>>()
            })
        });
        match tokio::time::timeout(self.time, lookup).await {
            Ok(Ok(Ok(found))) if !found.is_empty() => Ok(found),
            Ok(_) => Err(NameRefused::Unknown(text.to_owned())),
            Err(_) => Err(NameRefused::TimedOut(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_and_names_are_found() {
        let resolver = NameResolver::new(Duration::from_secs(20));
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            (" [2001:db8::1] ", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(resolver.addresses(text).await, Ok(vec![expected]), "{text}");
        }
        let local = resolver.addresses("localhost").await.unwrap();
        assert!(local[0].is_loopback());
    }

    #[tokio::test]
    async fn other_text_is_refused_and_not_repeated_at_length() {
        let resolver = NameResolver::new(Duration::from_secs(20));
        for text in ["", "a b", "<script>", "host:80", &"x".repeat(10_000)] {
            let refused = resolver.addresses(text).await.unwrap_err();
            assert!(matches!(refused, NameRefused::Text(_)), "{refused}");
            assert!(refused.to_string().len() < 200);
        }
        let refused = resolver.addresses("no-such-host.invalid").await;
        assert!(refused.is_err());
    }

    #[tokio::test]
    async fn no_more_names_are_looked_up_than_there_are_places() {
        let resolver = NameResolver::new(Duration::from_secs(20));
        let all = u32::try_from(AT_ONCE).unwrap();
        let _taken = resolver.places.acquire_many(all).await.unwrap();
        let refused = resolver.addresses("localhost").await;
        assert_eq!(refused, Err(NameRefused::Busy));
    }
}
