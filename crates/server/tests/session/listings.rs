//! Listings over data and control connections.

use std::fs;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

fn list(client: &mut ControlClient, command: &str) -> String {
    let address = client.pasv();
    client.send(command);
    let bytes = data_port::read_all(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    String::from_utf8(bytes).unwrap()
}

fn tree() -> InProcessServer {
    let server = InProcessServer::start();
    fs::create_dir_all(server.path("d/deep")).unwrap();
    server.create_file("d/a file", 17);
    server.create_file("d/deep/x", 3);
    server
}

#[test]
fn every_form_of_listing_names_the_entries() {
    let server = tree();
    let mut client = server.anonymous_client();
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
fn type_a_does_not_translate_the_line_ends_of_listings() {
    let server = tree();
    let mut client = server.anonymous_client();
    client.expect_reply("TYPE A", 200);
    let names = list(&mut client, "NLST d");
    assert!(
        names.contains("a file\r\n") && !names.contains("\r\r"),
        "{names:?}"
    );
}

#[test]
fn a_missing_directory_is_refused_before_150() {
    let server = tree();
    let mut client = server.anonymous_client();
    client.pasv();
    client.expect_reply("MLSD missing", 550);
}

#[test]
fn listings_over_the_control_connection() {
    let server = tree();
    let mut client = server.anonymous_client();
    assert!(
        client
            .expect_reply("MLST d/a file", 250)
            .text
            .contains("Size=17;")
    );
    assert!(client.expect_reply("MLSC d", 250).text.contains("; a file"));
    assert!(client.expect_reply("STAT d/deep", 213).text.contains(" x"));
    assert_eq!(client.expect_reply("SIZE d/a file", 213).text, "17");
    client.expect_reply("MLST missing", 550);
}

#[test]
fn a_large_directory_is_listed_completely() {
    let server = InProcessServer::start();
    fs::create_dir(server.path("many")).unwrap();
    for i in 0..3000 {
        fs::write(server.path(&format!("many/file number {i:04}")), b"").unwrap();
    }
    let mut client = server.anonymous_client();
    let facts = list(&mut client, "MLSD many");
    let files = facts.lines().filter(|l| l.contains("file number")).count();
    assert_eq!(files, 3000);
    let reply = client.expect_reply("MLSC many", 250);
    assert_eq!(
        reply
            .text
            .lines()
            .filter(|l| l.contains("file number"))
            .count(),
        3000
    );
}

#[test]
fn names_with_line_ends_do_not_split_lines() {
    let server = InProcessServer::start();
    fs::create_dir_all(server.path("d/sub\n226 done")).unwrap();
    fs::create_dir(server.path("d/dir\rx")).unwrap();
    for name in ["a\nb", "c\rd", "e\r\n226 done\r\nf", "sub\n226 done/g\n"] {
        fs::write(server.path("d").join(name), b"").unwrap();
    }
    std::os::unix::fs::symlink("x\r\n226 y", server.path("d/link")).unwrap();
    let mut client = server.anonymous_client();
    for (command, lines) in [("MLSD d", 8), ("MLSR d", 8), ("LIST d", 6), ("NLST d", 6)] {
        let text = list(&mut client, command);
        assert_eq!(text.split_inclusive("\r\n").count(), lines, "{text:?}");
        let bare = text.replace("\r\n", "").contains(['\r', '\n']);
        assert!(!bare, "{command}: {text:?}");
    }
    assert!(list(&mut client, "NLST d").contains("e??226 done??f\r\n"));
    // In replies, which clients read line by line.
    let inner = |text: &str| text.lines().count() - 2;
    assert_eq!(inner(&client.expect_reply("MLSC d", 250).text), 8);
    assert_eq!(inner(&client.expect_reply("STAT d", 213).text), 6);
    // A CR in a name is sent as CR NUL (RFC 854).
    client.expect_reply("CWD d/dir\r\0x", 250);
    assert!(
        client
            .expect_reply("PWD", 257)
            .text
            .starts_with("\"/d/dir?x\"")
    );
    client.expect_reply("DELE no\r\0such", 550);
    client.expect_reply("MLST ../c\r\0d", 250);
    client.expect_reply("DELE ../c\r\0d", 250);
    assert!(!server.path("d/c\rd").exists());
    client.expect_reply("SITE RDEL /d", 250);
    assert!(!server.path("d").exists());
    client.expect_reply("NOOP", 200);
}
