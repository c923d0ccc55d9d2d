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

mod protected {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::{PKey, Private};
    use openssl::rsa::{Padding, Rsa};
    use openssl::x509::X509;
    use parking_lot::Mutex;
    use security::test_pki::TestAuthority;
    use security::tls::TlsOptions;
    use security::x509::CertifiedKey;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;
    use crate::os::remote_key::{RemoteSigner, remote_key};

    const PATIENCE: Duration = Duration::from_secs(60);
    /// Longest wait of a signature.
    const SIGNING: Duration = Duration::from_secs(20);

    /// A server with this certificate and a client that does not verify it; the client is first.
    fn configs_of(credential: CertifiedKey) -> (TlsConfig, TlsConfig) {
        let server = TlsOptions::server()
            .with_credential(credential)
            .with_tickets();
        let client = TlsOptions::client().unverified();
        (
            TlsConfig::new(client).unwrap(),
            TlsConfig::new(server).unwrap(),
        )
    }

    /// The configurations of a client and a server.
    fn configs() -> (TlsConfig, TlsConfig) {
        let authority = TestAuthority::new("/O=Grid/CN=Authority");
        configs_of(authority.host(&["localhost"]))
    }

    /// Both ends after the handshake; the client is first.
    async fn secured(
        (client, server): &(TlsConfig, TlsConfig),
        resume: Option<&TlsSession>,
    ) -> (ControlTransport, ControlTransport) {
        let (mut near, mut far) = connected().await;
        near.start_tls(client, resume).unwrap();
        far.start_tls(server, None).unwrap();
        let both = async { tokio::join!(near.complete_handshake(), far.complete_handshake()) };
        let (at_client, at_server) = timeout(PATIENCE, both).await.unwrap();
        at_client.unwrap();
        at_server.unwrap();
        (near, far)
    }

    async fn line(transport: &mut ControlTransport) -> String {
        let mut buffer = [0; 1000];
        let read = timeout(PATIENCE, transport.read(&mut buffer));
        let count = read.await.unwrap().unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    /// Signs only after it was told to.
    struct WaitingSigner {
        key: Rsa<Private>,
        go_on: Mutex<mpsc::Receiver<()>>,
        begun: Mutex<Option<oneshot::Sender<()>>>,
    }

    impl RemoteSigner for WaitingSigner {
        fn rsa_private_encrypt(&self, input: &[u8], padding: Padding) -> Option<Vec<u8>> {
            let begun = self.begun.lock().take();
            begun.map(|begun| begun.send(()));
            self.go_on.lock().recv_timeout(SIGNING).ok()?;
            let mut output = vec![0; self.key.size() as usize];
            self.key.private_encrypt(input, &mut output, padding).ok()?;
            Some(output)
        }

        fn ecdsa_sign(&self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    /// The configurations of a client and of a server whose key waits.
    fn waiting_configs(
        go_on: mpsc::Receiver<()>,
        begun: oneshot::Sender<()>,
    ) -> (TlsConfig, TlsConfig) {
        let key = Rsa::generate(2048).unwrap();
        let mut certificate = X509::builder().unwrap();
        let local = PKey::from_rsa(key.clone()).unwrap();
        certificate.set_pubkey(&local).unwrap();
        let at = |days| Asn1Time::days_from_now(days).unwrap();
        certificate.set_not_before(&at(0)).unwrap();
        certificate.set_not_after(&at(9)).unwrap();
        certificate.sign(&local, MessageDigest::sha256()).unwrap();
        let chain = certificate.build().to_pem().unwrap();
        let public = PKey::public_key_from_der(&local.public_key_to_der().unwrap()).unwrap();
        let signer = Arc::new(WaitingSigner {
            key,
            go_on: Mutex::new(go_on),
            begun: Mutex::new(Some(begun)),
        });
        let held = remote_key(&public, signer).unwrap();
        configs_of(CertifiedKey::from_chain_pem(&chain, held, "a test's certificate").unwrap())
    }

    /// With one worker thread: the signature waits until a connection in the clear was served.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_slow_signature_delays_no_other_connection() {
        let (signed, go_on) = mpsc::channel();
        let (begun, has_begun) = oneshot::channel();
        let (client, server) = waiting_configs(go_on, begun);
        let (mut near, mut far) = connected().await;
        let (mut clear_near, mut clear_far) = connected().await;
        let accepting = tokio::spawn(async move {
            far.start_tls(&server, None).unwrap();
            far.complete_handshake().await
        });
        let clear = tokio::spawn(async move {
            has_begun.await.unwrap();
            clear_near.write_all(b"USER x\r\n").await.unwrap();
            assert_eq!(line(&mut clear_far).await, "USER x\r\n");
            signed.send(()).unwrap();
        });
        let connecting = tokio::spawn(async move {
            near.start_tls(&client, None).unwrap();
            near.complete_handshake().await
        });
        timeout(PATIENCE, clear).await.unwrap().unwrap();
        timeout(PATIENCE, accepting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        timeout(PATIENCE, connecting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn lines_pass_in_both_directions_and_the_session_is_resumed() {
        let configs = configs();
        let (mut near, mut far) = secured(&configs, None).await;
        far.write_all(b"220 ready\r\n").await.unwrap();
        assert_eq!(line(&mut near).await, "220 ready\r\n");
        near.write_all(b"NOOP\r\n").await.unwrap();
        assert_eq!(line(&mut far).await, "NOOP\r\n");
        assert!(!near.tls().unwrap().is_resumed());
        let session = near.tls().unwrap().session().unwrap();
        for _ in 0..2 {
            let (near, far) = secured(&configs, Some(&session)).await;
            assert!(near.tls().unwrap().is_resumed() && far.tls().unwrap().is_resumed());
        }
    }

    #[tokio::test]
    async fn a_large_reply_neither_loses_nor_repeats_bytes_when_it_must_wait() {
        let (mut near, mut far) = secured(&configs(), None).await;
        let bytes: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        let sending = tokio::spawn(async move {
            let (mut rest, mut has_waited) = (&bytes[..], false);
            while !rest.is_empty() {
                match far.try_write(rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        has_waited = true;
                        // One record and its frame, at most.
                        assert!(far.tls().unwrap().outgoing().len() < 20_000);
                        far.writable().await.unwrap();
                    }
                }
            }
            assert!(has_waited);
            far.shutdown().await.unwrap();
            far
        });
        let (mut received, mut buffer) = (Vec::new(), vec![0; 10_000]);
        loop {
            match timeout(PATIENCE, near.read(&mut buffer))
                .await
                .unwrap()
                .unwrap()
            {
                0 => break,
                count => received.extend_from_slice(&buffer[..count]),
            }
        }
        assert!(received == expected);
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn a_waiting_reader_sends_what_a_writer_left_behind() {
        let (mut near, mut far) = secured(&configs(), None).await;
        // Until some bytes stay here.
        let mut written = 0;
        while let Ok(count) = far.try_write(&[b'x'; 10_000]) {
            written += count;
        }
        assert!(!far.tls().unwrap().outgoing().is_empty());
        let answering = tokio::spawn(async move {
            let answer = line(&mut far).await;
            (answer, far)
        });
        let mut buffer = vec![0; 100_000];
        while written > 0 {
            written -= timeout(PATIENCE, near.read(&mut buffer))
                .await
                .unwrap()
                .unwrap();
        }
        near.write_all(b"NOOP\r\n").await.unwrap();
        assert_eq!(answering.await.unwrap().0, "NOOP\r\n");
    }

    #[tokio::test]
    async fn a_reader_does_not_spin_over_bytes_that_can_no_longer_be_sent() {
        let (mut near, mut far) = secured(&configs(), None).await;
        while far.try_write(&[b'x'; 10_000]).is_ok() {}
        assert!(!far.tls().unwrap().outgoing().is_empty());
        // Behind the FIN no byte can be sent, but the socket counts as writable for ever.
        far.stream.shutdown().await.unwrap();
        timeout(PATIENCE, far.stream.writable())
            .await
            .unwrap()
            .unwrap();
        let nothing = far.try_read(&mut [0; 10]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        tokio::select! {
            biased;
            _ = far.readable() => panic!("nothing can be read"),
            () = std::future::ready(()) => {}
        }
        assert!(far.try_write(b"more").is_err());
        // The other direction is still open.
        near.write_all(b"QUIT\r\n").await.unwrap();
        assert_eq!(line(&mut far).await, "QUIT\r\n");
    }

    #[tokio::test]
    async fn a_reader_that_never_waits_lets_others_have_their_turn() {
        let (mut near, mut far) = secured(&configs(), None).await;
        near.shutdown().await.unwrap();
        assert_eq!(line(&mut far).await, "");
        let reading = async {
            loop {
                far.readable().await.unwrap();
            }
        };
        let bound = timeout(Duration::from_millis(1), reading);
        assert!(bound.await.is_err(), "the end can be read for ever");
    }

    #[tokio::test]
    async fn a_line_that_is_cut_off_is_never_read() {
        let (mut near, mut far) = secured(&configs(), None).await;
        near.write_all(b"NOOP\r\n").await.unwrap();
        assert_eq!(line(&mut far).await, "NOOP\r\n");
        // A record of which the last byte is missing, then FIN.
        let tls = near.tls.as_mut().unwrap();
        tls.encrypt(b"DELE everything\r\n");
        let cut = tls.engine().outgoing().to_vec();
        near.stream.writable().await.unwrap();
        near.stream.try_write(&cut[..cut.len() - 1]).unwrap();
        near.stream.shutdown().await.unwrap();
        assert_eq!(line(&mut far).await, "");
        assert_eq!(line(&mut far).await, "");
    }

    #[tokio::test]
    async fn after_close_notify_the_other_direction_is_open() {
        let (mut near, mut far) = secured(&configs(), None).await;
        near.write_all(b"QUIT\r\n").await.unwrap();
        near.shutdown().await.unwrap();
        assert_eq!(line(&mut far).await, "QUIT\r\n");
        assert_eq!(line(&mut far).await, "");
        far.write_all(b"221 bye\r\n").await.unwrap();
        assert_eq!(line(&mut near).await, "221 bye\r\n");
    }

    #[tokio::test]
    async fn the_connection_continues_in_the_clear_after_tls() {
        let (mut near, mut far) = secured(&configs(), None).await;
        near.write_all(b"CCC\r\n").await.unwrap();
        assert_eq!(line(&mut far).await, "CCC\r\n");
        far.write_all(b"200 ok\r\n").await.unwrap();
        assert_eq!(line(&mut near).await, "200 ok\r\n");
        let both = async { tokio::join!(near.end_tls(), far.end_tls()) };
        let (at_client, at_server) = timeout(PATIENCE, both).await.unwrap();
        at_client.unwrap();
        at_server.unwrap();
        assert!(near.tls().is_none() && far.tls().is_none());
        near.stream.try_write(b"PASV\r\n").unwrap();
        assert_eq!(line(&mut far).await, "PASV\r\n");
        far.write_all(b"227 here\r\n").await.unwrap();
        assert_eq!(line(&mut near).await, "227 here\r\n");
    }

    #[tokio::test]
    async fn a_client_without_close_notify_ends_tls_with_its_first_clear_byte() {
        let (near, mut far) = secured(&configs(), None).await;
        near.stream.try_write(b"PASV\r\n").unwrap();
        timeout(PATIENCE, far.end_tls()).await.unwrap().unwrap();
        assert_eq!(line(&mut far).await, "PASV\r\n");
    }

    #[tokio::test]
    async fn a_command_under_tls_after_the_last_one_is_refused() {
        let (mut near, mut far) = secured(&configs(), None).await;
        near.write_all(b"DELE it\r\n").await.unwrap();
        let ended = timeout(PATIENCE, far.end_tls()).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn what_is_no_tls_fails_the_handshake() {
        let (client, server) = configs();
        let (mut near, mut far) = connected().await;
        far.start_tls(&server, None).unwrap();
        assert!(far.start_tls(&server, None).is_err());
        near.write_all(b"USER anonymous\r\n").await.unwrap();
        let error = timeout(PATIENCE, far.complete_handshake()).await.unwrap();
        let error = error.unwrap_err();
        assert!(tls_error(&error).is_some(), "{error}");
        // A FIN is an error of the connection, not of TLS.
        let (mut near, far) = connected().await;
        near.start_tls(&client, None).unwrap();
        drop(far);
        let error = timeout(PATIENCE, near.handshake())
            .await
            .unwrap()
            .unwrap_err();
        assert!(tls_error(&error).is_none(), "{error}");
        assert!(tls_error(&io::ErrorKind::TimedOut.into()).is_none());
    }

    #[tokio::test]
    async fn a_handshake_goes_on_after_it_was_cancelled() {
        let (client, server) = configs();
        let (mut near, mut far) = connected().await;
        near.start_tls(&client, None).unwrap();
        far.start_tls(&server, None).unwrap();
        let alone = timeout(Duration::from_millis(1), near.complete_handshake()).await;
        assert!(alone.is_err());
        let both = async { tokio::join!(near.complete_handshake(), far.complete_handshake()) };
        let (at_client, at_server) = timeout(PATIENCE, both).await.unwrap();
        at_client.unwrap();
        at_server.unwrap();
        near.write_all(b"NOOP\r\n").await.unwrap();
        assert_eq!(line(&mut far).await, "NOOP\r\n");
    }
}
