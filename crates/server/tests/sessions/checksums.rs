//! CKSM, SCKS, and the keep-alive markers of a long sum.

use std::fs::File;

use crate::data_port;
use crate::running::Running;

#[test]
fn of_a_whole_file_and_of_a_part() {
    let server = Running::start();
    std::fs::write(server.path("f"), b"hello world").unwrap();
    let mut client = server.anonymous();
    let md5 = client.expect("CKSM MD5 0 -1 f", 213);
    assert_eq!(md5.text, "5eb63bbbe01eeed093cb22bb8f5acdc3");
    let adler = client.expect("CKSM adler32 0 -1 f", 213);
    assert_eq!(adler.text, "1a0b045d");
    let part = client.expect("CKSM MD5 6 5 f", 213);
    assert_eq!(part.text, "7d793037a0760186574b0282f2f435e7");
    client.expect("CKSM FOO 0 -1 f", 504);
    client.expect("CKSM MD5 0 -1 missing", 550);
}

#[test]
fn markers_keep_a_long_sum_alive_and_lines_wait() {
    let server = Running::start();
    // A hole: nothing to read from the disk, and much to sum.
    File::create(server.path("huge"))
        .unwrap()
        .set_len(4 << 30)
        .unwrap();
    let mut client = server.anonymous();
    client.expect("OPTS CKSM Markers=1;", 200);
    client.raw("CKSM MD5 0 -1 huge\r\nNOOP\r\n");
    let marker = client.next(113);
    assert!(marker.text.contains("Bytes Processed: "), "{marker:?}");
    // The client goes away; the sum is given up. A server that went on would be slow to stop.
    drop(client);
    server.anonymous().expect("NOOP", 200);
}

#[test]
fn an_announced_sum_is_verified() {
    let server = Running::start();
    let mut client = server.anonymous();
    for (sum, code) in [
        ("5eb63bbbe01eeed093cb22bb8f5acdc3", 226),
        ("00000000000000000000000000000000", 550),
    ] {
        client.expect(&format!("SCKS MD5 {sum}"), 200);
        let address = client.pasv();
        client.send("STOR up");
        data_port::pour(data_port::connect(address), b"hello world");
        client.next(150);
        client.next(code);
    }
    assert_eq!(server.stored("up"), b"hello world");
}
