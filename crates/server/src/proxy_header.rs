//! The header with which a proxy announces the client's address (HAProxy's PROXY protocol, versions
//! 1 and 2). It is read only from proxies that the configuration names; from anyone else it would be
//! a forged address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use data::transport::ControlTransport;
use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::time::timeout;

use crate::config::ClientNetwork;

/// Longest wait for the header: a proxy sends it at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest header, bytes. Version 1 has at most 107; version 2 may carry more fields, which are
/// skipped.
const MAX_HEADER: usize = 4096;

const CONFIG: ParseConfig = ParseConfig {
    include_tlvs: false,
    allow_v1: true,
    allow_v2: true,
};

/// Whether connections from this address begin with a header.
pub(crate) fn is_proxy(proxies: &[ClientNetwork], peer: IpAddr) -> bool {
    proxies.iter().any(|network| network.contains(peer))
}

/// Reads the header, and nothing behind it. Returns the client's address; `None` for a connection of
/// the proxy's own (a health check).
///
/// # Errors
/// No valid header came in time.
pub(crate) async fn read_client_address(
    transport: &mut ControlTransport,
) -> io::Result<Option<SocketAddr>> {
    timeout(HEADER_TIMEOUT, read_header(transport)).await?
}

async fn read_header(transport: &mut ControlTransport) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        // Byte by byte: what follows belongs to the client's handshake. A header has some dozens.
        let mut byte = [0];
        if transport.read(&mut byte).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        header.extend(byte);
        match parse(&header)? {
            Some(client) => return Ok(client),
            None if header.len() >= MAX_HEADER => return Err(invalid("the header is too long")),
            None => {}
        }
    }
}

/// Parses a header; `None`: more bytes are needed.
pub(crate) fn parse(header: &[u8]) -> io::Result<Option<Option<SocketAddr>>> {
    match ProxyHeader::parse(header, CONFIG) {
        Ok((parsed, _)) => Ok(Some(parsed.proxied_address().map(|proxied| proxied.source))),
        Err(Error::BufferTooShort) => Ok(None),
        Err(error) => Err(invalid(&error.to_string())),
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("no valid PROXY header: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn read(bytes: &[u8]) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut proxy = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let mut transport = ControlTransport::accepted(listener.accept().await.unwrap().0);
        proxy.write_all(bytes).await.unwrap();
        drop(proxy);
        let client = read_client_address(&mut transport).await;
        let mut rest = vec![0; 64];
        let mut found = Vec::new();
        while let Ok(n @ 1..) = transport.read(&mut rest).await {
            found.extend_from_slice(&rest[..n]);
        }
        (client, found)
    }

    #[tokio::test]
    async fn the_client_is_known_and_what_follows_is_left() {
        let client: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let first = b"PROXY TCP4 192.0.2.1 198.51.100.1 4000 2811\r\nAUTH TLS\r\n";
        let (address, rest) = read(first).await;
        assert_eq!(address.unwrap(), Some(client));
        assert_eq!(rest, b"AUTH TLS\r\n");
        let mut second = Vec::new();
        let proxied =
            proxy_header::ProxiedAddress::stream(client, "198.51.100.1:2811".parse().unwrap());
        ProxyHeader::with_address(proxied)
            .encode_v2(&mut second)
            .unwrap();
        second.extend(b"USER x\r\n");
        let (address, rest) = read(&second).await;
        assert_eq!(address.unwrap(), Some(client));
        assert_eq!(rest, b"USER x\r\n");
    }

    #[tokio::test]
    async fn a_health_check_has_no_client() {
        assert_eq!(read(b"PROXY UNKNOWN\r\n").await.0.unwrap(), None);
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        for bytes in [
            &b"USER anonymous\r\n"[..],
            b"PROXY TCP4 x\r\n",
            b"",
            b"PROXY TC",
        ] {
            assert!(read(bytes).await.0.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn only_named_networks_are_proxies() {
        let proxies = [
            "192.0.2.0/24".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ];
        let is = |text: &str| is_proxy(&proxies, text.parse().unwrap());
        assert!(is("192.0.2.7") && is("::ffff:192.0.2.7") && is("2001:db8::1"));
        assert!(!is("198.51.100.1") && !is("::1"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
