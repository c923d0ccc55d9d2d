//! docs/data-channel.md, "Who may connect, and what a stranger can do": no action of a stranger
//! delays, fails or starves a transfer.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data::budget::StreamBudget;
use data::channel::{AllowedPeers, SessionDataChannel};
use data::error::DataError;
use proto::command::TransferMode;
use proto::eblock::BlockError;

use crate::blocks::{DATA, EOD, EOF, block, connect, receive_with};
use crate::transfer_ends::{ANY, LOCALHOST, LoopbackTransfer, listen, pattern, settings, sink};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Connections from another address of this host, which send `bytes` each.
fn strangers(to: SocketAddr, from: [u8; 4], count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let one = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // A separate address has its own range of ports.
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect(&to.into())?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(bytes).ok();
        Ok::<_, std::io::Error>(stream)
    };
    (0..count).map(|_| one().unwrap()).collect()
}

#[test]
fn a_thousand_strangers_neither_fail_nor_delay_a_transfer() {
    let bytes = pattern(500_000);
    let header = block(DATA, 0, b"");
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        // Silent ones, ones that send a byte, and ones that send an empty block.
        for said in [&b""[..], b"x", &header] {
            let allowed = mode == TransferMode::Extended || said.is_empty();
            let from = if allowed {
                [127, 0, 0, 1]
            } else {
                [127, 0, 0, 2]
            };
            let budget = StreamBudget::new(2);
            let (mut receiver, address) = listen(AllowedPeers::Only(LOCALHOST));
            receiver.set_budget(budget.for_client(CLIENT.into()));
            let early = strangers(address, from, 1000, said);
            let (stored, target) = sink();
            let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
            transfer.sender.close_after = true;
            let mut sender = SessionDataChannel::connect_to(vec![address], None);
            let (sent, received) = transfer.run(&mut sender, &mut receiver);
            let case = format!("{mode:?} {said:?}");
            sent.unwrap_or_else(|e| panic!("{case}: {e}"));
            received.unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(stored.bytes() == bytes, "{case}");
            assert_eq!(budget.used(), 0, "{case}");
            drop(early);
        }
    }
}

#[test]
fn silent_connections_do_not_reduce_the_budget_of_other_transfers() {
    let budget = StreamBudget::new(4);
    let (mut crowded, crowded_at) = listen(AllowedPeers::Only(LOCALHOST));
    crowded.set_budget(budget.for_client(CLIENT.into()));
    let settings = settings(TransferMode::Extended);
    let (stored, outcome, _) = receive_with(&mut crowded, ANY, &settings, &Arc::default(), || {
        let silent = strangers(crowded_at, [127, 0, 0, 1], 300, b"");
        // The receiver has accepted them once it reads this connection, which came after them.
        let mut own = connect(crowded_at, &block(DATA, 0, b"abc"));
        let other = IpAddr::from([192, 0, 2, 2]);
        let (mut receiver, address) = listen(AllowedPeers::Only(LOCALHOST));
        receiver.set_budget(budget.for_client(other.into()));
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&pattern(200_000), target, TransferMode::Extended);
        transfer.sender.streams = 2;
        let mut sender = SessionDataChannel::connect_to(vec![address], None);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert_eq!(stored.bytes().len(), 200_000);
        own.write_all(&block(EOF | EOD, 1, b"")).unwrap();
        drop(silent);
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"abc");
}

#[test]
fn in_mode_s_the_first_connection_with_a_byte_is_the_sender() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let _silent = connect(address, b"");
    drop(connect(address, b""));
    let sender = connect(address, b"the file");
    drop(sender);
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {});
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"the file");
}

#[test]
fn in_mode_s_a_connection_that_only_closes_is_an_empty_file() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    drop(connect(address, b""));
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {});
    assert_eq!(outcome.unwrap().evidence.streams, 1);
    assert!(stored.bytes().is_empty());
}

#[test]
fn the_error_names_the_refused_host_if_no_other_came() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
        let mut settings = settings(mode);
        settings.connect_timeout = Duration::from_millis(100);
        let _stranger = strangers(address, [127, 0, 0, 2], 1, b"");
        let (_, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {});
        let expected = IpAddr::from([127, 0, 0, 2]);
        assert!(
            matches!(outcome, Err(DataError::HostNotAllowed { from, .. }) if from == expected),
            "{outcome:?}"
        );
    }
}

#[test]
fn either_of_two_hosts_may_be_allowed() {
    let second = IpAddr::from([127, 0, 0, 2]);
    let (mut channel, address) = listen(AllowedPeers::Either(LOCALHOST, second));
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
        let closed = strangers(address, [127, 0, 0, 3], 1, b"third");
        for mut stream in closed {
            assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
        }
        drop(strangers(address, [127, 0, 0, 2], 1, b"second"));
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"second");
}

#[test]
fn an_invalid_first_block_is_the_error_if_no_valid_one_comes() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let mut settings = settings(TransferMode::Extended);
    settings.connect_timeout = Duration::from_millis(100);
    let _bad = connect(address, &block(EOF, 1 << 40, b""));
    let (_, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {});
    let bad = BlockError::EodCountTooLarge(1 << 40);
    assert!(
        matches!(&outcome, Err(DataError::Block { source, .. }) if *source == bad),
        "{outcome:?}"
    );
}

#[test]
fn a_transfer_reads_at_most_its_limit_of_connections() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let mut settings = settings(TransferMode::Extended);
    settings.max_connections = 2;
    let senders: Vec<_> = (0..6)
        .map(|n| {
            connect(
                address,
                &[block(DATA, n, b"x"), block(EOD, 0, b"")].concat(),
            )
        })
        .collect();
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
        drop(connect(address, &block(EOF | EOD, 7, b"")));
    });
    let report = outcome.unwrap();
    assert_eq!(stored.bytes(), b"xxxxxx");
    assert!(report.evidence.peak_streams <= 2, "{:?}", report.evidence);
    drop(senders);
}

#[test]
fn permits_are_taken_before_connections_are_made() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let targets = listeners.each_ref().map(|l| l.local_addr().unwrap());
    let arrived = || -> usize {
        let count = |listener: &TcpListener| {
            listener.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        listeners.iter().map(count).sum()
    };
    for (limit, connections) in [(1, 0), (3, 3), (100, 8)] {
        let budget = StreamBudget::new(limit);
        let mut sender = SessionDataChannel::connect_to(targets.to_vec(), None);
        sender.set_budget(budget.clone());
        let (_, target) = sink();
        let mut transfer = LoopbackTransfer::new(&pattern(1000), target, TransferMode::Extended);
        transfer.sender.streams = 4;
        let control = Arc::new(data::job::TransferControl::new());
        let sent = data::send::run(
            &mut sender,
            &transfer.source,
            &transfer.send,
            &transfer.sender,
            &control,
        );
        assert_eq!(sent.is_ok(), connections > 0, "{sent:?}");
        assert_eq!(arrived(), connections);
        // They are cached for the next transfer, and count.
        assert_eq!(budget.used(), connections);
        drop(sender);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn the_connection_limit_holds_over_several_targets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = SessionDataChannel::connect_to(vec![listener.local_addr().unwrap(); 3], None);
    let (_, target) = sink();
    let mut transfer = LoopbackTransfer::new(b"x", target, TransferMode::Extended);
    transfer.sender.max_connections = 2;
    let control = Arc::new(data::job::TransferControl::new());
    let sent = data::send::run(
        &mut sender,
        &transfer.source,
        &transfer.send,
        &transfer.sender,
        &control,
    );
    assert!(
        matches!(sent, Err(DataError::TooManyStreams { limit: 2 })),
        "{sent:?}"
    );
}

/// Writes `piece` repeatedly until the other end closes.
fn write_on(to: SocketAddr, first: &[u8], piece: &[u8]) {
    let mut stream = connect(to, first);
    stream
        .set_write_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    while stream.write_all(piece).is_ok() {}
}

#[test]
fn blocks_without_payload_do_not_delay_the_stall() {
    let empty = block(DATA, 0, b"").repeat(100);
    let marker = block(proto::eblock::BlockFlags::RESTART, 0, b"0-1").repeat(100);
    let eof = block(EOF, 2, b"").repeat(100);
    for piece in [&empty, &marker, &eof] {
        for first in [block(DATA, 0, b"abc"), Vec::new()] {
            let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
            let mut settings = settings(TransferMode::Extended);
            settings.options.stall = Duration::from_millis(300);
            settings.connect_timeout = Duration::from_millis(300);
            let (_, outcome, _) =
                receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
                    write_on(address, &first, piece);
                });
            assert!(
                matches!(outcome, Err(DataError::Stalled { .. })),
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn bytes_that_arrive_twice_must_be_equal() {
    type Blocks<'b> = &'b [(u64, &'b [u8])];
    let cases: [(Blocks<'_>, Result<&[u8], BlockError>); 4] = [
        (&[(0, b"abcdef"), (0, b"abcdef")], Ok(b"abcdef")),
        (
            &[(3, b"def"), (0, b"abcde"), (2, b"cdefgh")],
            Ok(b"abcdefgh"),
        ),
        (
            &[(0, b"abcdef"), (0, b"abcxef")],
            Err(BlockError::ConflictingDuplicate(0)),
        ),
        (
            &[(3, b"def"), (0, b"abcxef")],
            Err(BlockError::ConflictingDuplicate(3)),
        ),
    ];
    for (blocks, expected) in cases {
        let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
        let mut wire: Vec<u8> = blocks
            .iter()
            .flat_map(|(offset, data)| block(DATA, *offset, data))
            .collect();
        wire.extend(block(EOF | EOD, 1, b""));
        let settings = settings(TransferMode::Extended);
        let (stored, outcome, _) =
            receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
                drop(connect(address, &wire));
            });
        match (outcome, expected) {
            (Ok(_), Ok(bytes)) => assert_eq!(stored.bytes(), bytes),
            (Err(DataError::Block { source, .. }), Err(expected)) => assert_eq!(source, expected),
            (outcome, _) => panic!("{blocks:?}: {outcome:?}"),
        }
    }
}

#[test]
fn bytes_that_arrive_twice_are_refused_if_they_cannot_be_compared() {
    let file = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let target = data::store::file::FileSink::new(file.unwrap(), "/dev/null").unwrap();
    let target: Arc<dyn data::store::Sink> = Arc::new(target);
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let _peer = connect(address, &block(DATA, 5, b"abc").repeat(2));
    let settings = settings(TransferMode::Extended);
    let outcome = data::recv::run(&mut channel, &target, &ANY, &settings, &Arc::default());
    assert!(
        matches!(
            &outcome,
            Err(DataError::Block {
                source: BlockError::UnverifiableDuplicate(5),
                ..
            })
        ),
        "{outcome:?}"
    );
}
