//! Bytes of a file of 1 TB and more, before and behind 2³² and 2⁴⁰. Its holes take no disk space.

use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use proto::eblock::BlockHeader;

use super::client::{ControlClient, port_argument};
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

/// Numbers of bytes that shorter types would cut off.
const EDGES: [u64; 3] = [1 << 31, 1 << 32, 1 << 40];
/// Bytes that are written around each edge, half of them before it.
const AROUND: usize = 200_000;
/// Length of the file.
const LENGTH: u64 = (1 << 40) + (1 << 20);
/// More blocks than this were not left as holes, bytes.
const MAX_ALLOCATED: u64 = 16 << 20;

fn start(edge: u64) -> u64 {
    edge - AROUND as u64 / 2
}

/// The bytes around the edge with this number, other ones at each.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = test_bytes(AROUND);
    bytes.rotate_left(number * 1000 + 1);
    bytes
}

/// A server with the file `large`.
fn server() -> InProcessServer {
    let server = InProcessServer::start();
    let file = std::fs::File::create(server.path("large")).unwrap();
    for (number, edge) in EDGES.into_iter().enumerate() {
        file.write_all_at(&content(number), start(edge)).unwrap();
    }
    file.set_len(LENGTH).unwrap();
    server
}

fn retrieve(client: &mut ControlClient, command: &str) -> Vec<u8> {
    let address = client.pasv();
    client.send(command);
    let bytes = data_port::read_all(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    bytes
}

fn retrieve_command(edge: u64) -> String {
    format!("ERET P {} {AROUND} large", start(edge))
}

#[test]
fn parts_behind_every_edge_are_sent_in_stream_mode() {
    let server = server();
    let mut client = server.anonymous_client();
    assert_eq!(
        client.expect_reply("SIZE large", 213).text,
        LENGTH.to_string()
    );
    for (number, edge) in EDGES.into_iter().enumerate() {
        let part = retrieve(&mut client, &retrieve_command(edge));
        assert!(part == content(number), "{edge}");
    }
    // To the end of the file.
    client.expect_reply(&format!("REST {}", start(EDGES[2])), 350);
    let rest = retrieve(&mut client, "RETR large");
    assert_eq!(rest.len() as u64, LENGTH - start(EDGES[2]));
    let (data, hole) = rest.split_at(AROUND);
    assert!(data == content(2) && hole.iter().all(|byte| *byte == 0));
}

#[test]
fn parts_behind_every_edge_are_sent_and_checksummed_in_extended_mode() {
    let server = server();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    for (number, edge) in EDGES.into_iter().enumerate() {
        let listener = data_port::listen([127, 0, 0, 1].into());
        let port = port_argument(listener.local_addr().unwrap());
        client.expect_reply(&format!("PORT {port}"), 200);
        client.send(&retrieve_command(edge));
        let (mut stream, mut part) = (data_port::accept(&listener), Vec::new());
        // The offsets of a part count from its first byte (GFD.20, ERET).
        data_port::read_blocks(&mut stream, &mut part);
        client.expect_code(150);
        client.expect_code(226);
        assert!(part == content(number), "{edge}");
        let mut hasher =
            data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
        hasher.update(&content(number));
        let command = format!("CKSM CRC32C {} {AROUND} large", start(edge));
        assert_eq!(client.expect_reply(&command, 213).text, hasher.finish());
    }
}

/// The new file has the bytes around each edge at their offsets, and nothing else.
fn assert_stored(server: &InProcessServer, name: &str, numbers: &[usize]) {
    let file = std::fs::File::open(server.path(name)).unwrap();
    for number in numbers {
        let mut part = vec![0; AROUND];
        file.read_exact_at(&mut part, start(EDGES[*number]))
            .unwrap();
        assert!(part == content(*number), "{name}, {number}");
    }
    let facts = file.metadata().unwrap();
    assert_eq!(facts.len(), start(EDGES[2]) + AROUND as u64, "{name}");
    assert!(facts.blocks() * 512 < MAX_ALLOCATED, "{name}");
}

#[test]
fn parts_behind_every_edge_are_stored_in_stream_mode() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    for (number, edge) in EDGES.into_iter().enumerate() {
        let address = client.pasv();
        client.send(&format!("ESTO A {} parts", start(edge)));
        data_port::send_and_close(data_port::connect(address), &content(number));
        client.expect_code(150);
        client.expect_code(226);
    }
    assert_stored(&server, "parts", &[0, 1, 2]);
    // A file that is stored up to there, and the rest.
    let file = std::fs::File::create(server.path("rest")).unwrap();
    file.set_len(start(EDGES[2])).unwrap();
    client.expect_reply(&format!("REST {}", start(EDGES[2])), 350);
    let address = client.pasv();
    client.send("STOR rest");
    data_port::send_and_close(data_port::connect(address), &content(2));
    client.expect_code(150);
    client.expect_code(226);
    assert_stored(&server, "rest", &[2]);
}

#[test]
fn blocks_behind_every_edge_are_stored_in_extended_mode() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    // All between the blocks is there already, as holes.
    let file = std::fs::File::create(server.path("up")).unwrap();
    file.set_len(start(EDGES[2]) + AROUND as u64).unwrap();
    let [first, second, third] = EDGES.map(start);
    let end = |start: u64| start + AROUND as u64;
    let there = format!(
        "REST 0-{first},{}-{second},{}-{third}",
        end(first),
        end(second)
    );
    client.expect_reply(&there, 350);
    let address = client.pasv();
    client.send("STOR up");
    let mut stream = data_port::connect(address);
    // In another order than in the file.
    for number in [2, 0, 1] {
        data_port::send_block(&mut stream, start(EDGES[number]), &content(number));
    }
    data_port::send_header(&mut stream, BlockHeader::eof(1, true));
    stream.flush().unwrap();
    client.expect_code(150);
    client.expect_code_after_markers(226);
    assert_stored(&server, "up", &[0, 1, 2]);
}
