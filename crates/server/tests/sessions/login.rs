//! Who comes in, and what anonymous sessions may not do.

use std::net::{IpAddr, Ipv4Addr};

use crate::client::port_argument;
use crate::data_port;
use crate::running::{PASSWORD, Running, USER};

#[test]
fn anonymous_reads_and_a_user_writes() {
    let server = Running::with_users();
    let mut guest = server.anonymous();
    assert_eq!(guest.expect("MKD d", 550).code, 550);
    let mut user = server.user();
    user.expect("MKD d", 257);
    guest.expect("CWD d", 250);
}

#[test]
fn a_wrong_password_is_refused_and_the_session_goes_on() {
    let server = Running::with_users();
    let mut client = server.connect();
    client.expect("PWD", 530);
    client.expect(&format!("USER {USER}"), 331);
    client.expect("PASS wrong", 530);
    client.expect("USER nobody-here", 331);
    client.expect("PASS wrong", 530);
    client.log_in(USER, PASSWORD);
    client.expect("PWD", 257);
    client.expect("QUIT", 221);
    client.closed();
}

#[test]
fn rein_ends_the_login_and_its_count() {
    let server = Running::with(|config| {
        config.users = Some(std::path::PathBuf::new());
        config.max_sessions_per_user = 1;
    });
    let mut first = server.user();
    first.expect("REIN", 220);
    first.expect("PWD", 530);
    let _second = server.user();
    first.expect(&format!("USER {USER}"), 331);
    first.expect(&format!("PASS {PASSWORD}"), 421);
}

#[test]
fn anonymous_is_refused_where_it_is_not_offered() {
    let server = Running::with(|config| config.anonymous = None);
    let mut client = server.connect();
    client.expect("USER anonymous", 331);
    client.expect("PASS x@", 530);
}

#[test]
fn anonymous_cannot_bounce() {
    let server = Running::start();
    let mut client = server.anonymous();
    let elsewhere = data_port::listen(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let argument = port_argument(elsewhere.local_addr().unwrap());
    client.expect(&format!("PORT {argument}"), 501);
    client.expect("PORT 127,0,0,1,0,25", 501);
    client.expect("EPRT |1|127.0.0.1|1023|", 501);
    server.file("f", 10);
    client.expect("RETR f", 425);
}

#[test]
fn a_user_may_use_a_third_host_but_no_privileged_port() {
    let server = Running::with_users();
    let bytes = server.file("f", 100_000);
    let mut client = server.user();
    let elsewhere = data_port::listen(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    client.expect("SITE DATAPEER 127.0.0.2", 200);
    client.expect("PORT 127,0,0,2,0,25", 501);
    let argument = port_argument(elsewhere.local_addr().unwrap());
    client.expect(&format!("PORT {argument}"), 200);
    client.send("RETR f");
    assert_eq!(data_port::drain(data_port::accept(&elsewhere)), bytes);
    client.next(150);
    client.next(226);
}

#[test]
fn the_globus_default_account_is_anonymous_where_that_is_offered() {
    let server = Running::with_users();
    for password in ["", " ", " x@"] {
        let mut client = server.connect();
        client.expect("USER :globus-mapping:", 331);
        client.expect(&format!("PASS{password}"), 230);
        client.expect("MKD d", 550);
    }
}

#[test]
fn the_globus_default_account_never_counts_as_a_guess() {
    let server = Running::with(|config| {
        config.anonymous = None;
        config.users = Some(std::path::PathBuf::new());
    });
    for _ in 0..20 {
        let mut client = server.connect();
        client.expect("USER :globus-mapping:", 331);
        client.expect("PASS", 530);
    }
    server.user();
}

#[test]
fn many_sessions_that_log_in_at_once_with_the_right_password_wait_for_no_penalty() {
    let server = Running::with_users();
    let mut clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.raw(format!("USER {USER}\r\nPASS {PASSWORD}\r\n"));
    }
    for client in &mut clients {
        client.next(331);
        client.next(230);
    }
}

#[test]
fn a_stranger_may_send_few_commands() {
    let server = Running::start();
    let mut client = server.connect();
    client.raw("NOOP\r\n".repeat(201));
    for _ in 0..200 {
        client.next(200);
    }
    client.next(421);
    client.closed();
}
