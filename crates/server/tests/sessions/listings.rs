//! Listings over data and control connections.

use std::fs;

use crate::client::Client;
use crate::data_port;
use crate::running::Running;

fn list(client: &mut Client, command: &str) -> String {
    let address = client.pasv();
    client.send(command);
    let bytes = data_port::drain(data_port::connect(address));
    client.next(150);
    client.next(226);
    String::from_utf8(bytes).unwrap()
}

fn tree() -> Running {
    let server = Running::start();
    fs::create_dir_all(server.path("d/deep")).unwrap();
    server.file("d/a file", 17);
    server.file("d/deep/x", 3);
    server
}

#[test]
fn every_form_names_what_is_there() {
    let server = tree();
    let mut client = server.anonymous();
    let facts = list(&mut client, "MLSD d");
    assert!(
        facts
            .lines()
            .any(|l| l.ends_with("; a file") && l.contains("Size=17;")),
        "{facts}"
    );
    assert!(
        facts
            .lines()
            .any(|l| l.ends_with("; deep") && l.contains("Type=dir;")),
        "{facts}"
    );
    let long = list(&mut client, "LIST -la d");
    assert!(
        long.lines()
            .any(|l| l.starts_with("-rw") && l.ends_with(" a file")),
        "{long}"
    );
    let names = list(&mut client, "NLST d");
    assert!(names.lines().any(|l| l == "a file"), "{names}");
    let all = list(&mut client, "MLSR d");
    assert!(all.lines().any(|l| l.ends_with("; deep/x")), "{all}");
    let globbed = list(&mut client, "LIST d/a*");
    assert_eq!(globbed.lines().count(), 1, "{globbed}");
}

#[test]
fn type_a_does_not_double_the_line_ends() {
    let server = tree();
    let mut client = server.anonymous();
    client.expect("TYPE A", 200);
    let names = list(&mut client, "NLST d");
    assert!(
        names.contains("a file\r\n") && !names.contains("\r\r"),
        "{names:?}"
    );
}

#[test]
fn a_missing_directory_is_told_before_150() {
    let server = tree();
    let mut client = server.anonymous();
    client.pasv();
    client.expect("MLSD missing", 550);
}

#[test]
fn over_the_control_connection() {
    let server = tree();
    let mut client = server.anonymous();
    assert!(
        client
            .expect("MLST d/a file", 250)
            .text
            .contains("Size=17;")
    );
    assert!(client.expect("MLSC d", 250).text.contains("; a file"));
    assert!(client.expect("STAT d/deep", 213).text.contains(" x"));
    assert_eq!(client.expect("SIZE d/a file", 213).text, "17");
    client.expect("MLST missing", 550);
}

#[test]
fn a_large_directory_comes_whole() {
    let server = Running::start();
    fs::create_dir(server.path("many")).unwrap();
    for i in 0..3000 {
        fs::write(server.path(&format!("many/file number {i:04}")), b"").unwrap();
    }
    let mut client = server.anonymous();
    let facts = list(&mut client, "MLSD many");
    let files = facts.lines().filter(|l| l.contains("file number")).count();
    assert_eq!(files, 3000);
    let reply = client.expect("MLSC many", 250);
    assert_eq!(
        reply
            .text
            .lines()
            .filter(|l| l.contains("file number"))
            .count(),
        3000
    );
}
