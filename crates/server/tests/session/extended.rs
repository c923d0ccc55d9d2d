//! MODE E: all orders of EOF and EOD, kept connections, markers, delayed passive.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use proto::eblock::{BlockFlags, BlockHeader};

use super::client::{ControlClient, ReceivedReply, port_address, port_argument};
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

fn in_mode_e(server: &InProcessServer) -> ControlClient {
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    client
}

/// Sends `bytes` over the streams in turn, in blocks of `block` bytes, without EOF and EOD.
fn send_in_turn(streams: &mut [TcpStream], bytes: &[u8], block: usize) {
    let count = streams.len();
    for (i, part) in bytes.chunks(block).enumerate() {
        data_port::send_block(&mut streams[i % count], (i * block) as u64, part);
    }
}

/// The orders in which a sender may send EOF and EOD (extended block mode, GFD.20).
fn end_orders() -> BTreeMap<&'static str, fn(&mut [TcpStream])> {
    fn eof(streams: &[TcpStream]) -> BlockHeader {
        BlockHeader::eof(streams.len() as u64, false)
    }
    let mut end_orders: BTreeMap<&'static str, fn(&mut [TcpStream])> = BTreeMap::new();
    end_orders.insert("EOF on the first, then the others", |streams| {
        let eof = eof(streams);
        data_port::send_header(&mut streams[0], eof);
        for stream in &mut streams[1..] {
            data_port::send_header(stream, BlockHeader::eod(false));
        }
    });
    end_orders.insert("EOF on the last", |streams| {
        let eof = eof(streams);
        let last = streams.len() - 1;
        for stream in &mut streams[..last] {
            data_port::send_header(stream, BlockHeader::eod(false));
        }
        std::thread::sleep(Duration::from_millis(50));
        data_port::send_header(&mut streams[last], eof);
    });
    end_orders.insert("EOF alone, then an EOD on each", |streams| {
        let alone = BlockHeader {
            flags: BlockFlags(BlockFlags::EOF),
            ..eof(streams)
        };
        data_port::send_header(&mut streams[0], alone);
        for stream in streams {
            data_port::send_header(stream, BlockHeader::eod(false));
        }
    });
    end_orders.insert("with CLOSE", |streams| {
        let count = streams.len() as u64;
        for stream in &mut streams[1..] {
            data_port::send_header(stream, BlockHeader::eod(true));
        }
        data_port::send_header(&mut streams[0], BlockHeader::eof(count, true));
    });
    end_orders
}

#[test]
fn stores_accept_every_order_of_eof_and_eod() {
    let server = InProcessServer::start();
    let mut client = in_mode_e(&server);
    let bytes = test_bytes(1_500_000);
    for count in [1, 4] {
        for (name, end) in end_orders() {
            let address = client.pasv();
            client.send("STOR up");
            let mut streams: Vec<_> = (0..count).map(|_| data_port::connect(address)).collect();
            send_in_turn(&mut streams, &bytes, 65_536);
            end(&mut streams);
            client.expect_code_after_markers(150);
            client.expect_code_after_markers(226);
            assert!(server.read_file("up") == bytes, "{count} streams, {name}");
        }
    }
}

#[test]
fn data_in_the_eod_block_is_stored() {
    let server = InProcessServer::start();
    let mut client = in_mode_e(&server);
    let address = client.pasv();
    client.send("STOR up");
    let mut stream = data_port::connect(address);
    data_port::send_header(
        &mut stream,
        BlockHeader {
            flags: BlockFlags(BlockFlags::EOF),
            count: 0,
            offset: 1,
        },
    );
    data_port::send_header(
        &mut stream,
        BlockHeader {
            flags: BlockFlags(BlockFlags::EOD),
            count: 4,
            offset: 0,
        },
    );
    std::io::Write::write_all(&mut stream, b"last").unwrap();
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(226);
    assert_eq!(server.read_file("up"), b"last");
}

/// Reads the streams of a RETR to their ends.
fn receive(streams: &mut [TcpStream]) -> Vec<u8> {
    let mut file = Vec::new();
    let counts: Vec<u64> = streams
        .iter_mut()
        .filter_map(|stream| data_port::read_blocks(stream, &mut file))
        .collect();
    assert_eq!(counts, [streams.len() as u64], "one EOF, with the count");
    file
}

fn accept_all(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| data_port::accept(listener)).collect()
}

#[test]
fn retrieves_over_one_and_four_streams_keep_their_connections() {
    let server = InProcessServer::with_config(|config| config.transfer.block = 65_536);
    let bytes = server.create_file("f", 1_500_000);
    let empty = server.create_file("empty", 0);
    for count in [1, 4] {
        let mut client = in_mode_e(&server);
        client.expect_reply(
            &format!("OPTS RETR Parallelism={count},{count},{count};"),
            200,
        );
        let listener = data_port::listen(server.ip());
        let argument = port_argument(listener.local_addr().unwrap());
        client.expect_reply(&format!("PORT {argument}"), 200);

        client.send("RETR f");
        let mut streams = accept_all(&listener, count);
        assert!(receive(&mut streams) == bytes);
        client.expect_code(150);
        client.expect_code(226);
        // Refused before 150: the data connections stay open.
        client.expect_reply("RETR missing", 550);
        for (name, content) in [("f", &bytes), ("empty", &empty)] {
            client.send(&format!("RETR {name}"));
            assert!(receive(&mut streams) == *content);
            client.expect_code(125);
            client.expect_code(226);
        }
        // A new PORT closes the old data connections.
        let other = data_port::listen(server.ip());
        let argument = port_argument(other.local_addr().unwrap());
        client.expect_reply(&format!("PORT {argument}"), 200);
        for mut stream in streams {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }
}

#[test]
fn further_stores_use_the_kept_connections() {
    let server = InProcessServer::start();
    let mut client = in_mode_e(&server);
    let address = client.pasv();
    let mut streams: Vec<TcpStream> = Vec::new();
    for (round, size) in [200_000, 70_000, 0].into_iter().enumerate() {
        let bytes = test_bytes(size);
        client.send("STOR up");
        if round == 0 {
            streams = (0..3).map(|_| data_port::connect(address)).collect();
        }
        send_in_turn(&mut streams, &bytes, 10_000);
        for stream in &mut streams[1..] {
            data_port::send_header(stream, BlockHeader::eod(false));
        }
        data_port::send_header(&mut streams[0], BlockHeader::eof(3, false));
        client.expect_code_after_markers(if round == 0 { 150 } else { 125 });
        client.expect_code_after_markers(226);
        assert!(server.read_file("up") == bytes, "round {round}");
    }
}

#[test]
fn a_retrieve_uses_the_connections_of_a_listing() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 1000);
    let mut client = in_mode_e(&server);
    let listener = data_port::listen(server.ip());
    let argument = port_argument(listener.local_addr().unwrap());
    client.expect_reply(&format!("PORT {argument}"), 200);
    client.send("MLSD");
    let mut streams = accept_all(&listener, 1);
    let listing = String::from_utf8(receive(&mut streams)).unwrap();
    assert!(listing.contains("Size=1000;"), "{listing}");
    client.expect_code(150);
    client.expect_code(226);
    client.send("RETR f");
    assert_eq!(receive(&mut streams), bytes);
    client.expect_code(125);
    client.expect_code(226);
}

#[test]
fn delayed_passive_sends_the_address_in_a_127() {
    let server = InProcessServer::start();
    let bytes = test_bytes(50_000);
    let mut client = server.anonymous_client();
    client.expect_reply("OPTS PASV AllowDelayed=1;", 200);
    client.expect_reply("PASV", 200);
    client.send("STOR up");
    let address = port_address(&client.expect_code(127).text);
    data_port::send_and_close(data_port::connect(address), &bytes);
    client.expect_code(150);
    client.expect_code(226);
    assert_eq!(server.read_file("up"), bytes);

    client.expect_reply("PASV", 200);
    client.expect_reply("RETR missing", 550);
    client.expect_reply("PASV", 200);
    client.send("RETR up");
    let address = port_address(&client.expect_code(127).text);
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(150);
    client.expect_code(226);
}

fn ranges(markers: &[ReceivedReply]) -> Vec<&str> {
    markers
        .iter()
        .filter(|marker| marker.code == 111)
        .map(|marker| marker.text.rsplit(' ').next().unwrap())
        .collect()
}

#[test]
fn a_slow_store_sends_range_and_performance_markers() {
    let server = InProcessServer::with_config(|config| {
        config.perf_marker_seconds = 1;
        config.range_marker_seconds = 1;
    });
    let bytes = test_bytes(30_000);
    let mut client = in_mode_e(&server);
    let address = client.pasv();
    client.send("STOR up");
    let mut stream = data_port::connect(address);
    client.expect_code(150);
    let first = client.expect_code(112);
    assert!(
        first.text.contains("Stripe Bytes Transferred: 0"),
        "{first:?}"
    );
    data_port::send_block(&mut stream, 0, &bytes[..10_000]);
    let mut meanwhile = Vec::new();
    while ranges(&meanwhile).is_empty() {
        meanwhile.push(client.read_reply());
    }
    assert_eq!(ranges(&meanwhile), ["0-10000"]);
    assert!(
        meanwhile.iter().any(|m| m.code == 112),
        "a 112 with the 111: {meanwhile:?}"
    );
    data_port::send_block(&mut stream, 20_000, &bytes[20_000..]);
    data_port::send_block(&mut stream, 10_000, &bytes[10_000..20_000]);
    data_port::send_header(&mut stream, BlockHeader::eof(1, false));
    let (end, last) = client.reply_and_markers();
    assert_eq!(end.code, 226);
    // Markers are incremental: they name only ranges that the first 111 did not name.
    assert!(
        ranges(&last).iter().all(|r| !r.starts_with("0-")),
        "{last:?}"
    );
    assert!(
        last.iter().any(|m| m.text.contains("Transferred: 30000")),
        "{last:?}"
    );
    assert_eq!(server.read_file("up"), bytes);
}

#[test]
fn a_broken_store_names_the_safe_ranges_and_keeps_them() {
    let server = InProcessServer::start();
    let bytes = test_bytes(20_000);
    let mut client = in_mode_e(&server);
    let address = client.pasv();
    client.send("STOR up");
    let mut stream = data_port::connect(address);
    data_port::send_block(&mut stream, 0, &bytes[..10_000]);
    drop(stream);
    client.expect_code_after_markers(150);
    let (end, markers) = client.reply_and_markers();
    assert_eq!(end.code, 426);
    assert_eq!(ranges(&markers), ["0-10000"]);
    assert_eq!(server.read_file("up"), bytes[..10_000]);
    // The upload is resumed from the markers.
    let address: SocketAddr = client.pasv();
    client.expect_reply("REST 0-10000", 350);
    client.send("STOR up");
    let mut stream = data_port::connect(address);
    data_port::send_block(&mut stream, 10_000, &bytes[10_000..]);
    data_port::send_header(&mut stream, BlockHeader::eof(1, false));
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(226);
    assert_eq!(server.read_file("up"), bytes);
}

#[test]
fn repeated_blocks_must_have_the_same_content() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    for (again, code) in [(b"abc", 226), (b"abd", 426)] {
        let address = client.pasv();
        client.send("STOR up");
        let mut stream = data_port::connect(address);
        data_port::send_block(&mut stream, 0, b"abcdef");
        data_port::send_block(&mut stream, 0, again);
        data_port::send_header(&mut stream, BlockHeader::eof(1, true));
        client.expect_code_after_markers(150);
        client.expect_code_after_markers(code);
        assert_eq!(server.read_file("up"), b"abcdef");
    }
}
