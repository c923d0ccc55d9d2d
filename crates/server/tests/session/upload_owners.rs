//! Ownership of files during uploads: two sessions store the same name. At most one of two concurrent
//! uploads succeeds, and the file has its content.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use proto::eblock::BlockHeader;
use socket2::SockRef;

use super::client::{ControlClient, ReceivedReply};
use super::data_port;
use super::in_process_server::{InProcessServer, PASSWORD, USER, eventually, test_bytes};

/// Bytes of the first part of an upload. It may fit into the socket buffers.
const PART: usize = 100_000;

/// Begins a store and sends a part of it; returns when the part is in the file.
fn begin(
    server: &InProcessServer,
    client: &mut ControlClient,
    command: &str,
    part: &[u8],
) -> TcpStream {
    let name = command.rsplit(' ').next().unwrap();
    let before = std::fs::metadata(server.path(name)).map_or(0, |meta| meta.len());
    let appended = if command.starts_with("APPE") {
        before
    } else {
        0
    };
    let address = client.pasv();
    client.send(command);
    let mut data = data_port::connect(address);
    client.expect_code(150);
    data.write_all(part).unwrap();
    eventually("the part is stored", || {
        let length = std::fs::metadata(server.path(name)).map(|meta| meta.len());
        length.is_ok_and(|length| length == appended + part.len() as u64)
    });
    data
}

pub(crate) fn refused(reply: &ReceivedReply, name: &str) {
    assert_eq!(reply.code, 450, "{reply:?}");
    assert_eq!(
        reply.text,
        format!("/{name}: another upload is writing this file.")
    );
}

/// A server where anonymous sessions and one user may write.
pub(crate) fn server_with_writers() -> InProcessServer {
    InProcessServer::with_config(|config| {
        config.users = Some("to be made".into());
        config.transfer.stall = Duration::from_secs(60);
    })
}

/// Sends bytes at intervals until the newcomer gets its reply.
fn reply_while_owner_sends(
    newcomer: &mut ControlClient,
    owner: &mut TcpStream,
) -> (ReceivedReply, usize) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut sent = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                owner.write_all(b".").unwrap();
                sent += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        let reply = newcomer.read_reply();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (reply, owner.join().unwrap())
    })
}

#[test]
fn a_second_store_by_another_account_is_refused() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.anonymous_client());
    let part = test_bytes(PART);
    for command in ["STOR up", "APPE up", "ESTO A 50 up"] {
        let data = begin(&server, &mut first, "STOR up", &part);
        second.pasv();
        refused(&second.command(command), "up");
        second.expect_reply("REST 10", 350);
        refused(&second.command("STOR up"), "up");
        refused(&second.command("SITE TRNC 5 up"), "up");
        drop(data);
        first.expect_code(226);
        assert!(server.read_file("up") == part);
    }
    // The refusal keeps the data address.
    let address = second.pasv();
    let data = begin(&server, &mut first, "STOR up", &part);
    refused(&second.command("STOR up"), "up");
    second.send("STOR else");
    data_port::send_and_close(data_port::connect(address), b"other");
    second.expect_code(150);
    second.expect_code(226);
    drop(data);
    first.expect_code(226);
}

#[test]
fn a_second_store_of_the_same_account_is_refused_while_the_first_receives() {
    let server = InProcessServer::start();
    let (mut first, mut second) = (server.anonymous_client(), server.anonymous_client());
    for (command, later) in [
        ("STOR up", "STOR up"),
        ("APPE up", "APPE up"),
        ("STOR up", "ESTO A 0 up"),
    ] {
        let before = match command {
            "APPE up" => server.read_file("up"),
            _ => Vec::new(),
        };
        let part = test_bytes(PART);
        let mut data = begin(&server, &mut first, command, &part);
        second.pasv();
        second.send(later);
        let (reply, dots) = reply_while_owner_sends(&mut second, &mut data);
        refused(&reply, "up");
        drop(data);
        first.expect_code(226);
        let expected = [before, part, vec![b'.'; dots]].concat();
        assert!(server.read_file("up") == expected);
    }
}

#[test]
fn a_store_beside_a_store_of_ranges_is_refused() {
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.anonymous_client());
    let data = begin(&server, &mut first, "ESTO A 0 up", b"range");
    second.pasv();
    for command in ["STOR up", "APPE up"] {
        refused(&second.command(command), "up");
    }
    drop(data);
    first.expect_code(226);
    assert_eq!(server.read_file("up"), b"range");
}

#[test]
fn ranges_of_a_file_are_stored_concurrently() {
    let server = server_with_writers();
    let bytes = test_bytes(200_000);
    let mut sessions = [
        server.user_client(),
        server.anonymous_client(),
        server.anonymous_client(),
    ];
    let (half, rest) = bytes.split_at(100_000);
    let data = begin(&server, &mut sessions[0], "ESTO A 0 up", &half[..50_000]);
    for (client, offset) in sessions[1..].iter_mut().zip([100_000, 150_000]) {
        client.expect_reply("MODE E", 200);
        let address = client.pasv();
        client.send(&format!("ESTO A {offset} up"));
        let mut stream = data_port::connect(address);
        let from = offset - 100_000;
        data_port::send_block(&mut stream, 0, &rest[from..from + 50_000]);
        data_port::send_header(&mut stream, BlockHeader::eof(1, true));
        client.expect_code_after_markers(150);
        client.expect_code_after_markers(226);
    }
    let mut data = data;
    data.write_all(&half[50_000..]).unwrap();
    drop(data);
    sessions[0].expect_code(226);
    assert!(server.read_file("up") == bytes);
}

#[test]
fn a_unique_store_never_conflicts() {
    let server = InProcessServer::start();
    let (mut first, mut second) = (server.anonymous_client(), server.anonymous_client());
    let data = begin(&server, &mut first, "STOR up", b"first");
    let address = second.pasv();
    second.send("STOU up");
    data_port::send_and_close(data_port::connect(address), b"second");
    let name = second.expect_code(150).text;
    assert!(name.ends_with("up.1"), "{name}");
    second.expect_code(226);
    drop(data);
    first.expect_code(226);
    assert_eq!(
        (server.read_file("up"), server.read_file("up.1")),
        (b"first".into(), b"second".into())
    );
}

#[test]
fn a_reconnected_client_takes_over_the_file_from_its_dead_session() {
    let server = server_with_writers();
    for user in [false, true] {
        let session = || {
            if user {
                server.user_client()
            } else {
                server.anonymous_client()
            }
        };
        // As after a network failure: the old session gets no more bytes and no end.
        let mut dead = session();
        let silent = begin(&server, &mut dead, "STOR up", &test_bytes(PART));
        let mut back = session();
        let size = back.expect_reply("SIZE up", 213).text;
        let address = back.pasv();
        back.expect_reply(&format!("REST {size}"), 350);
        back.send("STOR up");
        data_port::send_and_close(data_port::connect(address), b"the rest");
        back.expect_code(150);
        back.expect_code(226);
        let reply = dead.expect_code(426);
        assert_eq!(reply.text, "/up: another upload took this file over.");
        drop(silent);
        dead.expect_reply("NOOP", 200);
        assert!(server.read_file("up") == [test_bytes(PART), b"the rest".to_vec()].concat());
    }
}

#[test]
fn a_session_with_a_disconnected_client_does_not_lock_the_file() {
    let server = server_with_writers();
    let mut dead = server.user_client();
    let _data = begin(&server, &mut dead, "STOR up", &test_bytes(PART));
    let mut back = server.anonymous_client();
    let address = back.pasv();
    drop(dead);
    back.send("STOR up");
    data_port::send_and_close(data_port::connect(address), b"all of it");
    back.expect_code(150);
    back.expect_code(226);
    assert_eq!(server.read_file("up"), b"all of it");
}

#[test]
fn abor_ends_the_wait_for_a_file() {
    let server = InProcessServer::start();
    let (mut first, mut second) = (server.anonymous_client(), server.anonymous_client());
    let data = begin(&server, &mut first, "STOR up", b"first");
    second.pasv();
    second.send_bytes("STOR up\r\nABOR\r\n");
    second.expect_code(426);
    second.expect_code(226);
    drop(data);
    first.expect_code(226);
    assert_eq!(server.read_file("up"), b"first");
}

#[test]
fn a_store_fails_if_its_file_is_deleted_or_renamed() {
    let server = InProcessServer::start();
    let (mut first, mut second) = (server.anonymous_client(), server.anonymous_client());
    for deletes in [true, false] {
        let data = begin(&server, &mut first, "STOR up", b"first");
        if deletes {
            second.expect_reply("DELE up", 250);
        } else {
            // Renamed by another program, because a session would be refused.
            std::fs::rename(server.path("up"), server.path("other")).unwrap();
        }
        drop(data);
        let reply = first.expect_code(451);
        assert!(
            reply.text.contains("was replaced while it was stored"),
            "{reply:?}"
        );
    }
}

/// A client sends lines and disconnects. The server is busy with the first line when the connection
/// ends, so the client has certainly left when the server handles the store.
#[test]
fn a_store_of_a_disconnected_client_changes_nothing() {
    let server = InProcessServer::start();
    let old = server.create_file("victim", 1000);
    std::fs::File::create(server.path("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    for command in ["STOR victim", "APPE victim", "ESTO A 0 victim", "STOR new"] {
        let mut client = server.anonymous_client();
        client.send_bytes(format!("CKSM MD5 0 -1 huge\r\nPASV\r\n{command}\r\n"));
        // The checksum is running: STAT is answered.
        client.send("STAT");
        client.expect_code(213);
        drop(client);
    }
    // The sessions end without help and hold no file.
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("APPE victim");
    data_port::send_and_close(data_port::connect(address), b"x");
    client.expect_code(150);
    client.expect_code(226);
    assert!(server.read_file("victim") == [old, b"x".to_vec()].concat());
    eventually("what was made for nothing is gone", || {
        !server.path("new").exists()
    });
}

#[test]
fn a_store_without_data_keeps_the_old_file() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(300));
    let old = server.create_file("f", 1000);
    for name in ["f", "new"] {
        let mut client = server.anonymous_client();
        client.pasv();
        client.send(&format!("STOR {name}"));
        client.expect_code(150);
        client.expect_code(425);
        // In MODE E: a connection that ends without EOD.
        client.expect_reply("MODE E", 200);
        let address = client.pasv();
        client.send(&format!("STOR {name}"));
        drop(data_port::connect(address));
        client.expect_code_after_markers(150);
        client.expect_code_after_markers(425);
    }
    assert!(server.read_file("f") == old);
    assert!(!server.path("new").exists());
}

#[test]
fn a_store_whose_connection_breaks_without_a_byte_keeps_the_old_file() {
    // The server waits for the stall time for another connection.
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_secs(1));
    let old = server.create_file("f", 1000);
    for name in ["f", "new"] {
        let mut client = server.anonymous_client();
        // Connected before the command, because the wait for a connection is the stall time, too.
        let data = data_port::connect(client.pasv());
        client.send(&format!("STOR {name}"));
        client.expect_code(150);
        SockRef::from(&data)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(data);
        let reply = client.read_reply();
        assert!(matches!(reply.code, 425 | 426), "{reply:?}");
    }
    assert!(server.read_file("f") == old);
    assert!(!server.path("new").exists());
}

#[test]
fn an_empty_file_is_stored_in_both_modes() {
    let server = InProcessServer::start();
    server.create_file("f", 1000);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("STOR f");
    drop(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    assert_eq!(server.read_file("f"), b"");
    client.expect_reply("MODE E", 200);
    for name in ["f", "new"] {
        let address = client.pasv();
        client.send(&format!("STOR {name}"));
        let mut data = data_port::connect(address);
        data_port::send_header(&mut data, BlockHeader::eof(1, true));
        client.expect_code_after_markers(150);
        client.expect_code_after_markers(226);
        assert_eq!(server.read_file(name), b"");
    }
}

#[test]
fn one_account_may_store_two_files_at_once() {
    // One account may store two files at the same time.
    let server = server_with_writers();
    let (mut first, mut second) = (server.user_client(), server.connect());
    second.log_in(USER, PASSWORD);
    let one = begin(&server, &mut first, "STOR one", b"1");
    let two = begin(&server, &mut second, "STOR two", b"2");
    drop((one, two));
    first.expect_code(226);
    second.expect_code(226);
}

/// Clients of two accounts store to the same name repeatedly, each its own content.
#[test]
fn a_file_is_never_a_mixture_of_two_uploads() {
    const ROUNDS: usize = 15;
    let server = server_with_writers();
    let contents: Vec<_> = (0..4u8)
        .map(|who| vec![b'a' + who; 40_000 + usize::from(who)])
        .collect();
    let succeeded: Vec<usize> = std::thread::scope(|scope| {
        let clients: Vec<_> = contents
            .iter()
            .enumerate()
            .map(|(who, content)| {
                let mut client = if who % 2 == 0 {
                    server.user_client()
                } else {
                    server.anonymous_client()
                };
                scope.spawn(move || {
                    (0..ROUNDS)
                        .filter(|_| try_store(&mut client, content))
                        .count()
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
    assert!(succeeded.iter().sum::<usize>() > 0, "{succeeded:?}");
    let stored = server.read_file("up");
    assert!(contents.contains(&stored), "{} bytes", stored.len());
}

/// Stores, unless another upload owns the file; returns whether the store succeeded.
fn try_store(client: &mut ControlClient, content: &[u8]) -> bool {
    let address = client.pasv();
    client.send("STOR up");
    let mut data = data_port::connect(address);
    let reply = client.read_reply();
    if reply.code != 150 {
        refused(&reply, "up");
        return false;
    }
    for part in content.chunks(10_000) {
        // Fails if the store was taken over, because this thread was not scheduled for the silence
        // limit.
        if data.write_all(part).is_err() {
            break;
        }
        std::thread::yield_now();
    }
    drop(data);
    let reply = client.read_reply();
    assert!(matches!(reply.code, 226 | 426), "{reply:?}");
    reply.code == 226
}
