//! Renames of uploads: a client renames what it has stored, in any of its sessions, and never what others have stored.

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;
use super::upload_owners::{refused, server_with_writers};

/// Stores a whole file.
fn stored(client: &mut ControlClient, name: &str, content: &[u8]) {
    let address = client.pasv();
    client.send(&format!("STOR {name}"));
    data_port::send_and_close(data_port::connect(address), content);
    client.expect_code(150);
    client.expect_code(226);
}

fn renamed(client: &mut ControlClient, from: &str, to: &str) {
    client.expect_reply(&format!("RNFR {from}"), 350);
    client.expect_reply(&format!("RNTO {to}"), 250);
}

fn rename_is_refused(client: &mut ControlClient, from: &str, to: &str) {
    client.expect_reply(&format!("RNFR {from}"), 350);
    refused(&client.command(&format!("RNTO {to}")), to);
}

#[test]
fn a_session_cannot_rename_an_upload_that_another_account_has_overwritten() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.anonymous_client(), server.user_client());
    stored(&mut first, "up", b"first");
    stored(&mut second, "up", b"second");
    rename_is_refused(&mut first, "up", "final");
    second.expect_reply("MFMT 20200101000000 up", 213);
    second.expect_reply("SITE CHMOD 600 up", 250);
    rename_is_refused(&mut first, "up", "final");
    renamed(&mut second, "up", "final");
    renamed(&mut second, "final", "again");
    assert_eq!(server.read_file("again"), b"second");
    // A file that this session has not stored may be renamed by anyone.
    server.create_file("f", 10);
    renamed(&mut first, "f", "moved");
}

#[test]
fn a_session_cannot_rename_an_upload_that_another_program_has_changed() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    stored(&mut client, "up", b"mine");
    std::fs::write(server.path("up"), b"theirs").unwrap();
    rename_is_refused(&mut client, "up", "final");
    // One that has not been changed since is the client's, under another name and with other rights, too.
    stored(&mut client, "up", b"mine");
    std::fs::hard_link(server.path("up"), server.path("link")).unwrap();
    renamed(&mut client, "up", "final");
}

#[test]
fn changes_of_time_and_rights_in_another_session_do_not_stop_a_rename() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.user_client());
    for change in ["MFMT 20200101000000 up", "SITE CHMOD 600 up"] {
        stored(&mut first, "up", b"content");
        second.expect_reply(change, if change.starts_with("MFMT") { 213 } else { 250 });
        renamed(&mut first, "up", "final");
        assert_eq!(server.read_file("final"), b"content");
    }
}

#[test]
fn a_session_renames_what_another_session_of_its_account_has_stored_again() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.user_client());
    for command in ["STOR up", "ESTO A 0 up"] {
        stored(&mut first, "up", b"first");
        let address = second.pasv();
        second.send(command);
        data_port::send_and_close(data_port::connect(address), b"again");
        second.expect_code(150);
        second.expect_code(226);
        renamed(&mut first, "up", "final");
        assert_eq!(server.read_file("final"), b"again");
    }
}

#[test]
fn a_session_cannot_rename_its_upload_after_a_part_of_another_one() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.user_client());
    stored(&mut first, "up", b"whole content");
    second.expect_reply("ALLO 100", 200);
    let address = second.pasv();
    second.send("STOR up");
    data_port::send_and_close(data_port::connect(address), b"a part");
    second.expect_code(150);
    second.expect_code(426);
    rename_is_refused(&mut first, "up", "final");
}

#[test]
fn a_new_file_has_nothing_in_common_with_a_removed_one() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.anonymous_client(), server.user_client());
    // File systems give the inode of a removed file to the next one.
    for _ in 0..3 {
        stored(&mut first, "old", b"old");
        second.expect_reply("DELE old", 250);
        stored(&mut second, "new", b"new");
        renamed(&mut first, "new", "final");
    }
}
