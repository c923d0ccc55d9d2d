//! Logins, and the rights of anonymous sessions.

use std::net::{IpAddr, Ipv4Addr};

use super::client::port_argument;
use super::data_port;
use super::in_process_server::{InProcessServer, PASSWORD, USER};

#[test]
fn anonymous_sessions_read_and_users_write() {
    let server = InProcessServer::with_users();
    let mut guest = server.anonymous_client();
    assert_eq!(guest.expect_reply("MKD d", 550).code, 550);
    let mut user = server.user_client();
    user.expect_reply("MKD d", 257);
    guest.expect_reply("CWD d", 250);
}

#[test]
fn a_wrong_password_is_refused_and_the_session_goes_on() {
    let server = InProcessServer::with_users();
    let mut client = server.connect();
    client.expect_reply("PWD", 530);
    client.expect_reply(&format!("USER {USER}"), 331);
    client.expect_reply("PASS wrong", 530);
    client.expect_reply("USER nobody-here", 331);
    client.expect_reply("PASS wrong", 530);
    client.log_in(USER, PASSWORD);
    client.expect_reply("PWD", 257);
    client.expect_reply("QUIT", 221);
    client.expect_close();
}

#[test]
fn rein_ends_the_login_and_frees_its_slot() {
    let server = InProcessServer::with_config(|config| {
        config.users = Some(std::path::PathBuf::new());
        config.max_sessions_per_user = 1;
    });
    let mut first = server.user_client();
    first.expect_reply("REIN", 220);
    first.expect_reply("PWD", 530);
    let _second = server.user_client();
    first.expect_reply(&format!("USER {USER}"), 331);
    first.expect_reply(&format!("PASS {PASSWORD}"), 421);
}

#[test]
fn anonymous_logins_are_refused_unless_allowed() {
    let server = InProcessServer::with_config(|config| config.anonymous = None);
    let mut client = server.connect();
    client.expect_reply("USER anonymous", 331);
    client.expect_reply("PASS x@", 530);
}

#[test]
fn anonymous_sessions_cannot_connect_to_other_hosts() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let elsewhere = data_port::listen(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let argument = port_argument(elsewhere.local_addr().unwrap());
    client.expect_reply(&format!("PORT {argument}"), 501);
    client.expect_reply("PORT 127,0,0,1,0,25", 501);
    client.expect_reply("EPRT |1|127.0.0.1|1023|", 501);
    server.create_file("f", 10);
    client.expect_reply("RETR f", 425);
}

#[test]
fn a_user_may_use_a_named_host_but_no_privileged_port() {
    let server = InProcessServer::with_users();
    let bytes = server.create_file("f", 100_000);
    let mut client = server.user_client();
    let elsewhere = data_port::listen(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    client.expect_reply("SITE DATAPEER 127.0.0.2", 200);
    client.expect_reply("PORT 127,0,0,2,0,25", 501);
    let argument = port_argument(elsewhere.local_addr().unwrap());
    client.expect_reply(&format!("PORT {argument}"), 200);
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::accept(&elsewhere)), bytes);
    client.expect_code(150);
    client.expect_code(226);
}

#[test]
fn globus_mapping_is_an_anonymous_login() {
    let server = InProcessServer::with_users();
    for password in ["", " ", " x@"] {
        let mut client = server.connect();
        client.expect_reply("USER :globus-mapping:", 331);
        client.expect_reply(&format!("PASS{password}"), 230);
        client.expect_reply("MKD d", 550);
    }
}

#[test]
fn globus_mapping_never_counts_as_a_failed_login() {
    let server = InProcessServer::with_config(|config| {
        config.anonymous = None;
        config.users = Some(std::path::PathBuf::new());
    });
    for _ in 0..20 {
        let mut client = server.connect();
        client.expect_reply("USER :globus-mapping:", 331);
        client.expect_reply("PASS", 530);
    }
    server.user_client();
}

#[test]
fn concurrent_logins_with_the_right_password_are_not_delayed() {
    let server = InProcessServer::with_users();
    let mut clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send_bytes(format!("USER {USER}\r\nPASS {PASSWORD}\r\n"));
    }
    for client in &mut clients {
        client.expect_code(331);
        client.expect_code(230);
    }
}

#[test]
fn the_number_of_commands_before_the_login_is_limited() {
    let server = InProcessServer::start();
    let mut client = server.connect();
    client.send_bytes("NOOP\r\n".repeat(201));
    for _ in 0..200 {
        client.expect_code(200);
    }
    client.expect_code(421);
    client.expect_close();
}
