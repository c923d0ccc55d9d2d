//! CKSM, SCKS, and the progress markers of a long checksum.

use std::fs::File;

use super::data_port;
use super::in_process_server::InProcessServer;

#[test]
fn cksm_of_a_whole_file_and_of_a_range() {
    let server = InProcessServer::start();
    std::fs::write(server.path("f"), b"hello world").unwrap();
    let mut client = server.anonymous_client();
    let md5 = client.expect_reply("CKSM MD5 0 -1 f", 213);
    assert_eq!(md5.text, "5eb63bbbe01eeed093cb22bb8f5acdc3");
    let adler = client.expect_reply("CKSM adler32 0 -1 f", 213);
    assert_eq!(adler.text, "1a0b045d");
    let part = client.expect_reply("CKSM MD5 6 5 f", 213);
    assert_eq!(part.text, "7d793037a0760186574b0282f2f435e7");
    client.expect_reply("CKSM FOO 0 -1 f", 504);
    client.expect_reply("CKSM MD5 0 -1 missing", 550);
}

#[test]
fn a_long_checksum_sends_markers_and_stops_with_its_client() {
    let server = InProcessServer::start();
    // A sparse file: nothing is read from the disk, but the checksum takes long.
    File::create(server.path("huge"))
        .unwrap()
        .set_len(4 << 30)
        .unwrap();
    let mut client = server.anonymous_client();
    client.expect_reply("OPTS CKSM Markers=1;", 200);
    client.send_bytes("CKSM MD5 0 -1 huge\r\nNOOP\r\n");
    let marker = client.expect_code(113);
    assert!(marker.text.contains("Bytes Processed: "), "{marker:?}");
    // The client disconnects, and the checksum stops. Otherwise the server would be slow to stop.
    drop(client);
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn an_announced_checksum_is_verified() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    for (checksum, code) in [
        ("5eb63bbbe01eeed093cb22bb8f5acdc3", 226),
        ("00000000000000000000000000000000", 550),
    ] {
        client.expect_reply(&format!("SCKS MD5 {checksum}"), 200);
        let address = client.pasv();
        client.send("STOR up");
        data_port::send_and_close(data_port::connect(address), b"hello world");
        client.expect_code(150);
        client.expect_code(code);
    }
    assert_eq!(server.read_file("up"), b"hello world");
}
