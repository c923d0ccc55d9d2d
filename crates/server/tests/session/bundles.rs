//! Bundles of small files: SITE BUNDLE, ERET BUNDLE, ESTO BUNDLE.

use std::fs::{self, Permissions};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use data::checksum::ChecksumHasher;
use flate2::read::ZlibDecoder;
use proto::bundle::BundleEntry;
use proto::checksum::ChecksumAlgorithm;
use proto::command::{Command, packed_announcements};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

fn crc32c(bytes: &[u8]) -> String {
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    hasher.update(bytes);
    hasher.finish()
}

fn get(client: &mut ControlClient, command: &str) -> Vec<u8> {
    let address = client.pasv();
    client.send(command);
    let bytes = data_port::read_all(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    bytes
}

fn put(client: &mut ControlClient, command: &str, bytes: &[u8]) {
    let address: SocketAddr = client.pasv();
    client.send(command);
    data_port::send_and_close(data_port::connect(address), bytes);
    client.expect_code(150);
    client.expect_code(226);
}

fn names(server: &InProcessServer, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(server.path(directory)).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_bundle_is_the_content_of_its_files_one_after_the_other() {
    let server = InProcessServer::start();
    fs::create_dir(server.path("d")).unwrap();
    fs::write(server.path("a"), "one").unwrap();
    fs::write(server.path("d/b c"), "four").unwrap();
    fs::write(server.path("empty"), "").unwrap();
    let mut client = server.anonymous_client();
    assert!(
        client
            .expect_reply("FEAT", 211)
            .text
            .contains("\n BUNDLE\n")
    );
    client.expect_reply("SITE BUNDLE ADD 3,,/a 0,,empty", 250);
    client.expect_reply("SITE BUNDLE ADD 4,,d/b%20c", 250);
    let bytes = get(&mut client, "ERET BUNDLE 3 /");
    assert_eq!(bytes, b"onefour");
    let outcome = client.expect_reply("SITE BUNDLE END", 250).text;
    let expected = format!("Bundle CRC32C {}\n250 End.", crc32c(b"onefour"));
    assert_eq!(outcome, expected);
    // Kept: a client that received other bytes asks for the checksum of each file, once.
    let differs = "SITE BUNDLE END CRC32C 00000000";
    let sums = client.expect_reply(differs, 450).text;
    let of = |bytes: &[u8]| crc32c(bytes);
    let expected = format!("\n SUMS {} {} {}\n", of(b"one"), of(b""), of(b"four"));
    assert!(sums.contains(&expected), "{sums}");
    client.expect_reply(differs, 550);
    client.expect_reply("SITE BUNDLE END", 550);
}

#[test]
fn files_that_cannot_be_sent_as_announced_are_zeros_and_are_named() {
    let server = InProcessServer::start();
    for name in ["a", "longer", "old"] {
        fs::write(server.path(name), "one").unwrap();
    }
    let mut client = server.anonymous_client();
    client.expect_reply(
        "SITE BUNDLE ADD 2,,gone 3,,a 2,,longer 3,20010101000000,old 1,,../../../etc/passwd",
        250,
    );
    let bytes = get(&mut client, "ERET BUNDLE 5 /");
    assert_eq!(bytes, b"\0\0one\0\0\0\0\0\0");
    let outcome = client.expect_reply("SITE BUNDLE END", 250).text;
    for index in [0, 2, 3, 4] {
        assert!(
            outcome.contains(&format!("\n FAILED {index} ")),
            "{outcome}"
        );
    }
    assert!(!outcome.contains("FAILED 1"), "{outcome}");
}

#[test]
fn stored_files_get_their_names_when_their_checksum_is_confirmed() {
    let server = InProcessServer::start();
    fs::create_dir(server.path("d")).unwrap();
    fs::write(server.path("d/a"), "of old").unwrap();
    let mut client = server.anonymous_client();
    let announce = "SITE BUNDLE ADD 3,20010203040506,d/a 4,,d/b 0,,d/empty 2,,missing/c 1,,d/x";
    client.expect_reply(announce, 250);
    let bytes = b"onefour..!";
    put(&mut client, "ESTO BUNDLE 5 d", bytes);
    assert_eq!(server.read_file("d/a"), b"of old");
    let proof = format!("SITE BUNDLE END CRC32C {} 4", crc32c(bytes));
    let outcome = client.expect_reply(&proof, 250).text;
    assert_eq!(outcome.matches("FAILED").count(), 2, "{outcome}");
    assert!(outcome.contains("\n FAILED 3 "), "{outcome}");
    assert!(outcome.contains("\n FAILED 4 "), "{outcome}");
    assert_eq!(names(&server, "d"), ["a", "b", "empty"]);
    assert_eq!(server.read_file("d/a"), b"one");
    assert_eq!(server.read_file("d/b"), b"four");
    let facts = client.expect_reply("MLST d/a", 250).text;
    assert!(facts.contains("Modify=20010203040506"), "{facts}");
}

#[test]
fn a_name_that_no_command_can_carry_is_not_stored() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("SITE BUNDLE ADD 3,,a%0Ab 3,,b", 250);
    let bytes = b"onetwo";
    put(&mut client, "ESTO BUNDLE 2 /", bytes);
    let proof = format!("SITE BUNDLE END CRC32C {}", crc32c(bytes));
    let outcome = client.expect_reply(&proof, 250).text;
    assert!(
        outcome.contains("\n FAILED 0 FTP cannot carry"),
        "{outcome}"
    );
    assert_eq!(names(&server, "."), ["b"]);
}

#[test]
fn a_bundle_with_another_checksum_is_not_stored() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let differs = "SITE BUNDLE END CRC32C 00000000";
    for ends in [
        &[(differs, 450), (differs, 550)][..],
        &[("SITE BUNDLE END", 550)],
    ] {
        client.expect_reply("SITE BUNDLE ADD 3,,a 3,,b", 250);
        put(&mut client, "ESTO BUNDLE 2 /", b"onetwo");
        for (end, code) in ends {
            assert_eq!(names(&server, ".").len(), 2, "not stored yet");
            client.expect_reply(end, *code);
        }
        assert_eq!(names(&server, "."), Vec::<String>::new());
    }
}

#[test]
fn a_bundle_that_is_cut_or_left_leaves_nothing() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("SITE BUNDLE ADD 3,,a 3,,b", 250);
    let address = client.pasv();
    client.send("ESTO BUNDLE 2 /");
    data_port::send_and_close(data_port::connect(address), b"onet");
    client.expect_code(150);
    client.expect_code(426);
    assert_eq!(names(&server, "."), Vec::<String>::new());
    client.expect_reply("SITE BUNDLE END CRC32C 00000000", 550);
    client.expect_reply("SITE BUNDLE ADD 3,,a 3,,b", 250);
    put(&mut client, "ESTO BUNDLE 2 /", b"onetwo");
    drop(client);
    let begun = Instant::now();
    while !names(&server, ".").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the files stay");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_file_that_another_has_put_in_the_place_of_one_of_a_bundle_is_not_confirmed() {
    let server = InProcessServer::start();
    fs::write(server.path("victim"), "of another").unwrap();
    let mut client = server.anonymous_client();
    client.expect_reply("SITE BUNDLE ADD 3,,a 3,,b", 250);
    put(&mut client, "ESTO BUNDLE 2 /", b"onetwo");
    let unfinished = names(&server, ".");
    let first = unfinished
        .iter()
        .find(|name| fs::read(server.path(name)).unwrap() == b"one")
        .unwrap();
    fs::remove_file(server.path(first)).unwrap();
    fs::hard_link(server.path("victim"), server.path(first)).unwrap();
    let end = format!("SITE BUNDLE END CRC32C {}", crc32c(b"onetwo"));
    let outcome = client.expect_reply(&end, 250).text;
    assert!(
        outcome.contains("\n FAILED 0 it was removed or replaced"),
        "{outcome}"
    );
    assert!(!server.path("a").exists());
    assert_eq!(server.read_file("b"), b"two");
    assert_eq!(server.read_file("victim"), b"of another");
}

#[test]
fn a_file_of_a_bundle_has_the_mode_of_the_file_that_it_replaces() {
    let server = InProcessServer::start();
    let mode = |name: &str| fs::metadata(server.path(name)).unwrap().mode() & 0o7777;
    for name in ["a", "b"] {
        fs::write(server.path(name), "old").unwrap();
    }
    fs::set_permissions(server.path("a"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(server.path("b"), Permissions::from_mode(0o4755)).unwrap();
    let mut client = server.anonymous_client();
    client.expect_reply("SITE BUNDLE ADD 3,,a 3,,b", 250);
    put(&mut client, "ESTO BUNDLE 2 /", b"onetwo");
    for name in names(&server, ".") {
        if fs::read(server.path(&name)).unwrap() == b"one" {
            assert_eq!(mode(&name), 0o600, "{name}");
        }
    }
    let end = format!("SITE BUNDLE END CRC32C {}", crc32c(b"onetwo"));
    client.expect_reply(&end, 250);
    assert_eq!((mode("a"), mode("b")), (0o600, 0o755));
}

#[test]
fn a_bundle_must_have_the_files_that_were_announced() {
    let server = InProcessServer::start();
    server.create_file("a", 3);
    let mut client = server.anonymous_client();
    client.expect_reply("ERET BUNDLE 1 /", 503);
    client.expect_reply("SITE BUNDLE ADD 3,,a", 250);
    client.expect_reply("SITE BUNDLE ADD 3,never,a", 501);
    client.expect_reply("ERET BUNDLE 2 /", 503);
    // The first number that is wrong has ended the announcement.
    client.expect_reply("ESTO BUNDLE 1 /", 503);
    client.expect_reply("SITE BUNDLE ADD 3,,a", 250);
    client.expect_reply("REST 2", 350);
    client.expect_reply("ERET BUNDLE 1 /", 554);
    client.expect_reply("SITE BUNDLE ADD 3,,a", 250);
    client.expect_reply("TYPE A", 200);
    client.expect_reply("ERET BUNDLE 1 /", 554);
    client.expect_reply("SITE BUNDLE REMOVE 3,,a", 504);
    let announcement = format!("SITE BUNDLE ADD {}", "1,,a ".repeat(1000));
    for _ in 0..16 {
        client.expect_reply(&announcement, 250);
    }
    client.expect_reply(&announcement, 552);
}

#[test]
fn who_may_only_read_stores_no_bundle() {
    let server = InProcessServer::with_users();
    let mut client = server.anonymous_client();
    client.expect_reply("SITE BUNDLE ADD 3,,a", 250);
    client.pasv();
    client.expect_reply("ESTO BUNDLE 1 /", 550);
    assert_eq!(names(&server, "."), Vec::<String>::new());
}

#[test]
fn announcements_may_be_compressed() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let entry = |path: &str, size| BundleEntry {
        path: path.as_bytes().to_vec(),
        size,
        modified: None,
    };
    let entries = [entry("a", 3), entry("b c", 4)];
    for command in packed_announcements(&entries) {
        let line = String::from_utf8(Command::Site(command).encode()).unwrap();
        client.expect_reply(line.trim_end(), 250);
    }
    put(&mut client, "ESTO BUNDLE 2 /", b"onefour");
    let end = format!("SITE BUNDLE END CRC32C {}", crc32c(b"onefour"));
    client.expect_reply(&end, 250);
    assert_eq!(names(&server, "."), ["a", "b c"]);
    client.expect_reply("SITE BUNDLE PACK eAHLSM3J", 501);
}

#[test]
fn the_text_of_a_tree_may_be_compressed() {
    let server = InProcessServer::start();
    fs::create_dir(server.path("d")).unwrap();
    for n in 0..3000 {
        fs::write(server.path(&format!("d/{n}")), "").unwrap();
    }
    let mut client = server.anonymous_client();
    let plain = get(&mut client, "MLSR /");
    client.expect_reply("OPTS MLSR Deflate=1;", 200);
    let packed = get(&mut client, "MLSR /");
    assert!(packed.len() * 4 < plain.len(), "{} bytes", packed.len());
    let mut text = Vec::new();
    ZlibDecoder::new(packed.as_slice())
        .read_to_end(&mut text)
        .unwrap();
    let mut lines: [Vec<&[u8]>; 2] =
        [&plain, &text].map(|text| text.split(|byte| *byte == b'\n').collect());
    lines.iter_mut().for_each(|lines| lines.sort_unstable());
    assert_eq!(lines[0], lines[1]);
    client.expect_reply("OPTS MLSR Deflate=0;", 200);
    assert_eq!(get(&mut client, "MLSR /").len(), plain.len());
}
