//! Protected connections through a proxy that closes both directions as soon as one has ended.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data::channel::{AllowedPeers, SessionDataChannel};
use data::tunnel::{DataRoute, ProxyService, TunnelRoute};
use proto::command::TransferMode;
use proto::tunnel::{TunnelProtocol, TunnelTarget};

use super::ends::{FtpsEnds, WirePeer, protected};
use crate::transfer_ends::{
    LOCALHOST, LoopbackTransfer, listen, memory, pattern, sink, whole_plan,
};

/// How long the proxy holds what it has read from the client.
const HELD: Duration = Duration::from_millis(100);

/// The connections that the proxy opens at once; it answers the others after [`HELD`].
const OPENED_AT_ONCE: usize = 1;

/// Reads a CONNECT request for this server, and answers it.
fn open(client: &mut TcpStream, server: SocketAddr) -> TcpStream {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        assert_eq!(client.read(&mut byte).unwrap(), 1);
        request.push(byte[0]);
    }
    let opened = TcpStream::connect(server).unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    opened
}

/// Passes on what the client sends, later. At the client's FIN both directions are closed, and what
/// is held is lost.
fn relay(mut client: TcpStream, mut server: TcpStream) {
    let (mut from_server, mut to_client) =
        (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        // The client may be gone.
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut held = vec![0; 256 << 10];
    while let Ok(len @ 1..) = client.read(&mut held) {
        std::thread::sleep(HELD);
        let is_ended =
            client.set_nonblocking(true).is_ok() && matches!(client.peek(&mut [0]), Ok(0));
        client.set_nonblocking(false).unwrap();
        if is_ended || server.write_all(&held[..len]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

/// A passive receiver, and the active sender whose connections go through the proxy.
fn pair_through_proxy() -> (SessionDataChannel, SessionDataChannel) {
    let (receiver, server) = listen(AllowedPeers::Only(LOCALHOST));
    (sender_through_proxy(server), receiver)
}

/// A sender whose connections to this server go through the proxy.
fn sender_through_proxy(server: SocketAddr) -> SessionDataChannel {
    let proxy = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let at = proxy.local_addr().unwrap();
    std::thread::spawn(move || {
        for (nth, client) in proxy.incoming().enumerate() {
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                if nth >= OPENED_AT_ONCE {
                    std::thread::sleep(HELD);
                }
                let opened = open(&mut client, server);
                relay(client, opened);
            });
        }
    });
    let route = TunnelRoute {
        proxy: Arc::new(ProxyService {
            name: "http://proxy.example".to_owned(),
            protocol: TunnelProtocol::HttpConnect,
            login: None,
        }),
        at,
        server: TunnelTarget::at(LOCALHOST, server.port()),
        server_ip: LOCALHOST,
    };
    SessionDataChannel::connect_by(vec![server], None, Some(Arc::new(DataRoute::Proxy(route))))
}

#[test]
fn a_sender_ends_its_side_only_after_the_peer() {
    let ends = FtpsEnds::new();
    for len in [1, 300_000] {
        let (mut sender, mut receiver) = pair_through_proxy();
        let bytes = pattern(len);
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Stream);
        [transfer.sender, transfer.receiver] = ends.sender_and_receiver(TransferMode::Stream, true);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert!(stored.bytes() == bytes, "{len}");
    }
}

#[test]
fn a_peer_that_ends_its_side_only_after_the_fin_has_the_file() {
    let ends = FtpsEnds::new();
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let mut sender = sender_through_proxy(listener.local_addr().unwrap());
    let config = ends.server.server.clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut peer = WirePeer::on(listener.accept().unwrap().0, &config, None);
        let read = peer.read_to_end();
        // No answer to close_notify: only the FIN ends its side.
        while matches!(peer.stream.read(&mut [0; 100]), Ok(1..)) {}
        read
    });
    let mut settings = protected(TransferMode::Stream, &ends.client);
    settings.options.stall = Duration::from_secs(2);
    let sent = data::send::run(
        &mut sender,
        &memory(b"the file"),
        &whole_plan(8),
        &settings,
        &Arc::default(),
    );
    sent.unwrap();
    assert_eq!(reading.join().unwrap(), (b"the file".to_vec(), true));
}

#[test]
fn no_handshake_that_a_server_may_wait_for_is_cut_off() {
    let ends = FtpsEnds::new();
    let (mut sender, mut receiver) = pair_through_proxy();
    let (stored, target) = sink();
    let mut transfer = LoopbackTransfer::new(b"x", target, TransferMode::Extended);
    [transfer.sender, transfer.receiver] = ends.sender_and_receiver(TransferMode::Extended, true);
    transfer.sender.streams = 4;
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    received.unwrap();
    assert!(stored.bytes() == b"x");
    // The first stream sends everything before the others are open.
    assert_eq!(sent.unwrap().evidence.streams, 4);
}
