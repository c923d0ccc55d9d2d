//! Settings of a site about its clients: who is served, shares, modes of files, and messages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use server::config::{ServerConfig, UserShares};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, PASSWORD, USER, eventually};

fn users_server(change: impl FnOnce(&mut ServerConfig)) -> InProcessServer {
    InProcessServer::with_config(|config| {
        config.users = Some(PathBuf::new());
        change(config);
    })
}

fn store(client: &mut ControlClient, name: &str, bytes: &[u8], code: u16) {
    let address = client.pasv();
    client.send(&format!("STOR {name}"));
    let mut stream = data_port::connect(address);
    // A server that refuses the store closes the connection.
    let _ = stream.write_all(bytes);
    drop(stream);
    client.expect_code_after_150(code);
}

#[test]
fn clients_of_other_networks_are_turned_away() {
    let server = InProcessServer::with_config(|config| {
        config.access.allow_from = vec!["127.0.0.0/8".parse().unwrap()];
        config.access.deny_from = vec!["127.0.0.2".parse().unwrap()];
    });
    server.anonymous_client();
    let denied = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut client = ControlClient::from_address(denied, server.address);
    let reply = client.expect_code(421);
    assert!(reply.text.contains("not served"), "{reply:?}");
    client.expect_close();
    // A reload decides about the next client.
    let mut config = server.config.clone();
    config.access.deny_from.clear();
    server.reloads.blocking_send(config).unwrap();
    eventually("the address is served", || {
        let mut client = ControlClient::from_address(denied, server.address);
        client.read_reply().code == 220
    });
}

#[test]
fn users_on_a_deny_list_cannot_log_in_with_the_right_password() {
    let server = users_server(|config| {
        config.access.deny_users = vec![USER.to_owned()];
        // Nor does the reply tell that the user has no session left.
        let own = UserShares {
            max_sessions: Some(0),
            ..UserShares::default()
        };
        config.shares.users = BTreeMap::from([(USER.to_owned(), own)]);
    });
    server.anonymous_client();
    let mut client = server.connect();
    client.expect_reply(&format!("USER {USER}"), 331);
    let denied = client.expect_reply(&format!("PASS {PASSWORD}"), 530);
    client.expect_reply(&format!("USER {USER}"), 331);
    let wrong = client.expect_reply("PASS wrong", 530);
    assert_eq!(denied, wrong, "the reply tells nothing about the password");
}

#[test]
fn an_allow_list_excludes_anonymous_sessions_too() {
    let server = users_server(|config| config.access.allow_users = vec![USER.to_owned()]);
    server.user_client();
    let mut client = server.connect();
    client.expect_reply("USER anonymous", 331);
    client.expect_reply("PASS x@", 530);
}

#[test]
fn a_table_bounds_all_anonymous_sessions_together() {
    let server = InProcessServer::with_config(|config| {
        let own = UserShares {
            max_sessions: Some(1),
            ..UserShares::default()
        };
        config.shares.users = BTreeMap::from([("anonymous".to_owned(), own)]);
    });
    let first = server.anonymous_client();
    let mut second = server.connect();
    second.expect_reply("USER ftp", 331);
    second.expect_reply("PASS x@", 421);
    drop(first);
    eventually("the session has ended", || {
        let mut next = server.connect();
        next.expect_reply("USER ftp", 331);
        next.send("PASS x@");
        next.read_reply().code == 230
    });
}

#[test]
fn a_user_may_have_more_sessions_than_others() {
    let server = users_server(|config| {
        config.max_sessions_per_user = 1;
        let own = UserShares {
            max_sessions: Some(2),
            ..UserShares::default()
        };
        config.shares.users = BTreeMap::from([(USER.to_owned(), own)]);
    });
    let _sessions = [server.user_client(), server.user_client()];
    let mut third = server.connect();
    third.expect_reply(&format!("USER {USER}"), 331);
    third.expect_reply(&format!("PASS {PASSWORD}"), 421);
}

#[test]
fn the_bandwidth_of_a_user_limits_that_user_only() {
    let server = users_server(|config| {
        // Bytes per second: the user's transfer takes minutes.
        config.shares.rate_per_user = Some(1000);
    });
    // It would fit into the socket buffers.
    let bytes = server.create_file("f", 200_000);
    let mut user = server.user_client();
    let mut guest = server.anonymous_client();
    let address = user.pasv();
    user.send("RETR f");
    let mut slow = data_port::connect(address);
    user.expect_code(150);
    slow.read_exact(&mut [0; 1000]).unwrap();
    let address = guest.pasv();
    guest.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    guest.expect_code(150);
    guest.expect_code(226);
    user.send("ABOR");
    user.expect_code(426);
    user.expect_code(226);
}

#[test]
fn new_files_and_directories_have_the_configured_modes() {
    let server = InProcessServer::with_config(|config| {
        config.creation.umask = Some("007".parse().unwrap());
        config.creation.directory_mode = Some("2771".parse().unwrap());
    });
    let mut client = server.anonymous_client();
    store(&mut client, "f", b"content", 226);
    client.expect_reply("MKD d", 257);
    let mode = |name: &str| {
        fs::metadata(server.path(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!((mode("f") & 0o7777, mode("d") & 0o7777), (0o660, 0o2771));
}

#[test]
fn the_greeting_the_login_and_directories_have_messages() {
    let server = users_server(|config| {
        let directory = config.root.clone();
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let messages = &mut config.messages;
        messages.banner = Some("archive ready".to_owned());
        messages.banner_file = Some(file("banner", "no tapes\n220 petabytes\n"));
        messages.welcome_file = Some(file("welcome", "be kind\n"));
        messages.directory_message = Some(".message".to_owned());
        file(".message", "top\r\nof it\n");
    });
    fs::create_dir(server.path("quiet")).unwrap();
    let mut client = ControlClient::connect_silently(server.address);
    let greeting = client.expect_code(220).text;
    assert_eq!(greeting, "no tapes\n220-220 petabytes\n220 archive ready");
    client.expect_reply(&format!("USER {USER}"), 331);
    let welcome = client.expect_reply(&format!("PASS {PASSWORD}"), 230).text;
    assert!(welcome.contains("\n230-be kind\n"), "{welcome}");
    let quiet = client.expect_reply("CWD quiet", 250).text;
    assert_eq!(quiet, "CWD command successful.");
    let top = client.expect_reply("CDUP", 250).text;
    assert_eq!(top, "top\n250-of it\n250 CWD command successful.");
    // Another user's message does nothing to the terminal on which it is shown.
    for (message, shown) in [
        (&b"a\x1b[2J\x07b\tc"[..], "a?[2J?b\tc"),
        ("Grüße\u{9b}2J".as_bytes(), "Grüße?2J"),
        (b"\xff\xf4\x9b2J\x80", "?\u{fffd}?2J?"),
    ] {
        fs::write(server.path("quiet/.message"), message).unwrap();
        let quiet = client.expect_reply("CWD /quiet", 250).text;
        assert!(quiet.starts_with(shown), "{quiet:?}");
    }
    fs::remove_file(server.path("quiet/.message")).unwrap();
    // A message that is a link out of the root, or too long, is none.
    std::os::unix::fs::symlink("/etc/hostname", server.path("quiet/.message")).unwrap();
    let quiet = client.expect_reply("CWD /quiet", 250).text;
    assert_eq!(quiet, "CWD command successful.");
}

#[test]
fn stores_above_the_quota_get_552_and_leave_nothing() {
    let server = users_server(|config| {
        config.shares.quota.bytes = Some(1_000_000);
        let own = UserShares {
            quota: Some("3M".parse().unwrap()),
            ..UserShares::default()
        };
        config.shares.users = BTreeMap::from([(USER.to_owned(), own)]);
    });
    let mut guest = server.anonymous_client();
    let bytes = server.create_file("old", 600_000);
    let large = [1; 2_000_000];
    // Before: the size is announced.
    guest.expect_reply("ALLO 500000", 200);
    let _address = guest.pasv();
    guest.send("STOR announced");
    let refusal = guest.expect_code_after_150(552);
    assert!(refusal.text.contains("quota"), "{refusal:?}");
    // During: it is not.
    store(&mut guest, "new", &large, 552);
    assert!(!server.path("announced").exists() && !server.path("new").exists());
    assert_eq!(server.read_file("old"), bytes);
    // A range of a file, too.
    for command in ["ESTO A 0 part", "ESTO A 100 part", "APPE part"] {
        let address = guest.pasv();
        guest.send(command);
        let mut data = data_port::connect(address);
        // The server may have refused them before all are sent.
        let _ = data.write_all(&large);
        drop(data);
        guest.expect_code(150);
        guest.expect_code(552);
        assert!(!server.path("part").exists(), "{command}");
    }
    // The next store has room, and a user with a larger quota has more.
    store(&mut guest, "small", &large[..300_000], 226);
    store(&mut server.user_client(), "large", &large, 226);
}
