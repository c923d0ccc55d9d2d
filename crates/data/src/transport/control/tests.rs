use tokio::net::TcpListener;

use super::*;

async fn connected() -> (ControlTransport, ControlTransport) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = ControlTransport::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), ControlTransport::accepted(far.unwrap().0))
}

#[tokio::test]
async fn a_write_larger_than_the_buffers_completes_as_the_peer_reads() {
    let (near, mut far) = connected().await;
    let mut near = near.handshake().await.unwrap();
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let sending = tokio::spawn(async move {
        near.write_all(&bytes).await.unwrap();
        near.shutdown().await.unwrap();
        near
    });
    let mut received = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match far.read(&mut buffer).await.unwrap() {
            0 => break,
            n => received.extend_from_slice(&buffer[..n]),
        }
    }
    assert!(received == expected);
    // The other direction is still open.
    let mut near = sending.await.unwrap();
    far.write_all(b"bye").await.unwrap();
    assert_eq!(near.read(&mut buffer).await.unwrap(), 3);
}
