//! Dynamic right-sizing: which server is asked for what, and the effect of a refusal.

use std::net::IpAddr;

use data::drs::DrsEndpoint;
use proto::command::Command;
use proto::sizing::BufferSizing;
use tokio::io::AsyncReadExt;

use super::*;
use proto::sizing::SocketBuffers;

const DRS: &str =
    "211-x\n PARALLEL\n SIZE\n ERET\n REST STREAM\n DRS auto;kernel;drs1;drs;drs2004;\n211 End.";
const NONCE: &str = "000102030405060708090a0b0c0d0eff";

fn spec_sized_by(sizing: BufferSizing) -> TransferSpec {
    let mut spec = spec();
    spec.options.buffers = SocketBuffers::sized_by(sizing);
    spec
}

fn get_script(bytes: &[u8]) -> Vec<ScriptedAction> {
    vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("RETR /f"),
        SendLine("150 go"),
        SendData(bytes.to_vec()),
        SendLine("226 done"),
    ]
}

#[tokio::test]
async fn a_stock_server_gets_no_drs_commands_and_the_user_one_warning() {
    for sizing in [BufferSizing::Drs, BufferSizing::Drs1] {
        let actions = vec![
            login_script_with_feat(GRIDFTP),
            get_script(b"hello"),
            get_script(b"hello"),
        ];
        let (mut session, peer) = open_session(actions).await;
        let attempt = fetch(&mut session, &sink(), &spec_sized_by(sizing))
            .await
            .unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        let [warning] = attempt.warnings.as_slice() else {
            panic!("{:?}", attempt.warnings);
        };
        assert!(
            warning.contains("does not support") && warning.contains("auto"),
            "{warning}"
        );
        let again = fetch(&mut session, &sink(), &spec_sized_by(sizing))
            .await
            .unwrap();
        assert_eq!(again.warnings, Vec::<String>::new());
        peer.finish().await;
    }
}

#[tokio::test]
async fn a_drs_server_gets_no_opts_drs_unless_the_policy_changes() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        get_script(b"hello"),
        command_and_reply("OPTS DRS kernel", "200 ok"),
        get_script(b"hello"),
        get_script(b"hello"),
        command_and_reply("OPTS DRS auto", "200 ok"),
        get_script(b"hello"),
    ])
    .await;
    for sizing in [
        BufferSizing::Auto,
        BufferSizing::Kernel,
        BufferSizing::Kernel,
        BufferSizing::Auto,
    ] {
        let attempt = fetch(&mut session, &sink(), &spec_sized_by(sizing))
            .await
            .unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(sizing));
        assert_eq!(attempt.warnings, Vec::<String>::new());
    }
    peer.finish().await;
}

#[tokio::test]
async fn a_refused_policy_falls_back_to_auto_with_one_warning() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "501 not today"),
        command_and_reply("DPSV", "503 not without it"),
        get_script(b"hello"),
        get_script(b"hello"),
    ])
    .await;
    for warnings in [1, 0] {
        let attempt = fetch(&mut session, &sink(), &spec_sized_by(BufferSizing::Drs))
            .await
            .unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
    }
    peer.finish().await;
}

#[tokio::test]
async fn a_refused_or_malformed_drs_channel_is_omitted() {
    for reply in [
        "500 what?",
        "502 not here",
        "229 Entering DRS Passive Mode (|||5|)",
    ] {
        let (mut session, peer) = open_session(vec![
            login_script_with_feat(DRS),
            command_and_reply("OPTS DRS drs", "200 ok"),
            command_and_reply("DPSV", reply),
            get_script(b"hello"),
            get_script(b"hello"),
        ])
        .await;
        for warnings in [1, 0] {
            let attempt = fetch(&mut session, &sink(), &spec_sized_by(BufferSizing::Drs))
                .await
                .unwrap();
            assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Drs));
            assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
        }
        peer.finish().await;
    }
}

#[tokio::test]
async fn a_transiently_refused_drs_channel_is_requested_again() {
    let address_reply = format!("229 Entering DRS Passive Mode (|1|127.0.0.1|9|{NONCE}|)").leak();
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "200 ok"),
        command_and_reply("DPSV", "425 no port"),
        get_script(b"hello"),
        command_and_reply("DPSV", address_reply),
        get_script(b"hello"),
    ])
    .await;
    for warnings in [1, 0] {
        let attempt = fetch(&mut session, &sink(), &spec_sized_by(BufferSizing::Drs))
            .await
            .unwrap();
        assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
    }
    peer.finish().await;
}

#[tokio::test]
async fn the_drs_channel_uses_the_host_of_the_data() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address_reply =
        format!("229 Entering DRS Passive Mode (|1|192.0.2.9|{port}|{NONCE}|)").leak();
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "200 ok"),
        command_and_reply("DPSV", address_reply),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            AcceptAndHold,
        ],
        vec![Sleep(500), SendLine("226 done")],
    ])
    .await;
    let spec = spec_sized_by(BufferSizing::Drs);
    let sink = sink();
    let fetching = fetch(&mut session, &sink, &spec);
    let drs_greeting = async {
        let (mut stream, from) = listener.accept().await.unwrap();
        let mut line = [0; 38];
        stream.read_exact(&mut line).await.unwrap();
        (from.ip().to_string(), line)
    };
    let (attempt, (from, line)) = tokio::join!(fetching, drs_greeting);
    attempt.unwrap();
    assert_eq!(from, "127.0.0.1");
    assert_eq!(line[..], *format!("DRS {NONCE}\r\n").as_bytes());
    peer.finish().await;
    let endpoint = session.drs_endpoint().unwrap();
    // From the control connection's address, since servers compare the two.
    let bound = matches!(*endpoint, DrsEndpoint::Connecting { local: Some(ip), .. } if ip == from.parse::<IpAddr>().unwrap());
    assert!(bound, "{endpoint:?}");
}

#[tokio::test]
async fn an_unreachable_drs_channel_does_not_fail_the_transfer() {
    // Nobody listens there. The address is requested once per session.
    let nowhere = format!("229 Entering DRS Passive Mode (|1|127.0.0.1|9|{NONCE}|)").leak();
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        // Both are sent before either is answered, which saves a round trip.
        vec![
            ExpectLine("OPTS DRS drs"),
            ExpectLine("DPSV"),
            SendLine("200 ok"),
            SendLine(nowhere),
        ],
        get_script(b"hello"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![SendLine("150 go"), ReceiveData, SendLine("226 done")],
    ])
    .await;
    let spec = spec_sized_by(BufferSizing::Drs);
    let attempt = fetch(&mut session, &sink(), &spec).await.unwrap();
    assert_eq!(attempt.warnings, Vec::<String>::new());
    store(&mut session, b"bytes", &spec).await.unwrap();
    assert_eq!(peer.finish().await, b"bytes");
}

#[tokio::test]
async fn a_126_reply_is_not_a_final_reply() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs1", "200 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![
            SendLine("150 go"),
            SendLine("126 Buffer Size (262144)"),
            ReceiveData,
        ],
        vec![SendLine("126 Buffer Size (lots)"), SendLine("226 done")],
    ])
    .await;
    let attempt = store(&mut session, b"bytes", &spec_sized_by(BufferSizing::Drs1))
        .await
        .unwrap();
    assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Drs1));
    assert_eq!(peer.finish().await, b"bytes");
}

/// Sends two sizes during a transfer; the second one is too late.
async fn send_two_sizes(session: &mut ClientSession) {
    let control = &mut session.control;
    control.send(&Command::Retr(b"/f".to_vec())).await.unwrap();
    assert_eq!(control.wait_for_reply().await.unwrap().code, 150);
    control.send_buffer_size(262_144).await.unwrap();
    assert_eq!(control.wait_for_reply().await.unwrap().code, 226);
    control.send_buffer_size(524_288).await.unwrap();
    assert!(!control.is_usable());
    control.drain_sbuf_replies().await;
}

#[tokio::test]
async fn late_replies_to_sbuf_are_discarded() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        vec![
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            ExpectLine("SBUF 262144"),
            SendLine("226 done"),
        ],
        vec![ExpectLine("SBUF 524288"), Sleep(50), SendLine("200 late")],
        command_and_reply("PWD", "257 \"/\""),
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    send_two_sizes(&mut session).await;
    assert!(session.is_usable());
    session.delete(b"/g").await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn a_session_without_257_to_pwd_is_abandoned() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(DRS),
        vec![
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            ExpectLine("SBUF 262144"),
            SendLine("226 done"),
        ],
        vec![ExpectLine("SBUF 524288"), ExpectLine("PWD")],
        vec![
            SendLine("500 what"),
            SendLine("500 what"),
            SendLine("500 what"),
        ],
    ])
    .await;
    send_two_sizes(&mut session).await;
    assert!(!session.is_usable());
    assert!(session.delete(b"/g").await.unwrap_err().may_retry());
    peer.finish().await;
}

#[tokio::test]
async fn remarks_are_read_only_from_servers_that_announce_drs() {
    const REMARK: &str = "226 Transfer Complete. Raise net.ipv4.tcp_wmem.";
    for (features, remarks) in [(DRS, 1), (GRIDFTP, 0)] {
        let (mut session, peer) = open_session(vec![
            login_script_with_feat(features),
            vec![
                ExpectPassiveAndReply("PASV"),
                ExpectLine("RETR /f"),
                SendLine("150 go"),
            ],
            vec![SendData(b"hello".to_vec()), SendLine(REMARK)],
        ])
        .await;
        let attempt = fetch(&mut session, &sink(), &spec()).await.unwrap();
        assert_eq!(attempt.remarks.len(), remarks);
        if let Some(remark) = attempt.remarks.first() {
            assert_eq!(remark.host.as_deref(), Some(session.name()));
            assert_eq!(remark.text.as_deref(), Some("Raise net.ipv4.tcp_wmem."));
        }
        peer.finish().await;
    }
}

/// One of two servers in a transfer from `/s` to `/d`.
fn script_between(
    features: &'static str,
    before: Vec<Vec<ScriptedAction>>,
    receives: bool,
) -> Vec<Vec<ScriptedAction>> {
    let mut actions = vec![login_script_with_feat(features)];
    actions.extend(before);
    actions.push(match receives {
        true => vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
            ExpectLine("STOR /d"),
        ],
        false => [
            command_and_reply("PORT 127,0,0,1,", "200 ok"),
            vec![ExpectLine("RETR /s")],
        ]
        .concat(),
    });
    actions.push(vec![SendLine("150 go"), SendLine("226 done")]);
    actions
}

async fn copy_between_servers(
    sizing: BufferSizing,
    source: Vec<Vec<ScriptedAction>>,
    destination: Vec<Vec<ScriptedAction>>,
) -> (SocketBuffers, Vec<String>) {
    let (mut source_session, source_peer) = open_session(source).await;
    let (mut destination_session, destination_peer) = open_session(destination).await;
    let spec = TransferSpec {
        size: Some(5),
        ..spec_sized_by(sizing)
    };
    let attempt = third_party(
        &mut source_session,
        b"/s",
        &mut destination_session,
        b"/d",
        &spec,
        &Arc::default(),
        &|_| (),
    )
    .await;
    let attempt = attempt.unwrap();
    source_peer.finish().await;
    destination_peer.finish().await;
    (attempt.buffers, attempt.warnings)
}

#[tokio::test]
async fn between_servers_the_destination_listens_and_the_source_connects() {
    // The host is that of the data, whatever the server says.
    let address_reply =
        format!("229 Entering DRS Passive Mode (|1|192.0.2.9|41000|{NONCE}|)").leak();
    let dprt_line = format!("DPRT |1|127.0.0.1|41000|{NONCE}|\r\n").leak();
    for (sizing, opts) in [
        (BufferSizing::Drs, "OPTS DRS drs"),
        (BufferSizing::Drs2004, "OPTS DRS drs2004"),
    ] {
        let drs = || command_and_reply(opts, "200 ok");
        let source = script_between(
            DRS,
            vec![drs(), command_and_reply(dprt_line, "200 ok")],
            false,
        );
        let destination = script_between(
            DRS,
            vec![drs(), command_and_reply("DPSV", address_reply)],
            true,
        );
        let (buffers, warnings) = copy_between_servers(sizing, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(sizing));
        assert_eq!(warnings, Vec::<String>::new());
    }
}

#[tokio::test]
async fn between_servers_each_sizes_its_own_without_a_drs_channel() {
    let address_reply =
        format!("229 Entering DRS Passive Mode (|1|192.0.2.9|41000|{NONCE}|)").leak();
    let dprt_line = format!("DPRT |1|127.0.0.1|41000|{NONCE}|\r\n").leak();
    let both = || {
        [
            command_and_reply("OPTS DRS drs", "200 ok"),
            command_and_reply("OPTS DRS auto", "200 ok"),
        ]
    };
    for reply in ["425 no port", "500 what?"] {
        let [drs, auto] = both();
        let destination =
            script_between(DRS, vec![drs, command_and_reply("DPSV", reply), auto], true);
        let source = script_between(DRS, both().into(), false);
        let (buffers, warnings) =
            copy_between_servers(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
    for reply in ["450 not now", "501 not there"] {
        let [drs, auto] = both();
        let source = script_between(
            DRS,
            vec![drs, command_and_reply(dprt_line, reply), auto],
            false,
        );
        let [drs, auto] = both();
        let address = vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ];
        let before = vec![drs, command_and_reply("DPSV", address_reply), address, auto];
        let destination = script_between(DRS, before, true);
        let (buffers, warnings) =
            copy_between_servers(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[tokio::test]
async fn between_servers_both_must_announce_drs() {
    for (from, to) in [(GRIDFTP, DRS), (DRS, GRIDFTP)] {
        let source = script_between(from, Vec::new(), false);
        let destination = script_between(to, Vec::new(), true);
        let (buffers, warnings) =
            copy_between_servers(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[tokio::test]
async fn between_servers_one_refusal_resets_the_other_to_auto() {
    let source = script_between(
        DRS,
        vec![
            command_and_reply("OPTS DRS drs", "200 ok"),
            command_and_reply("OPTS DRS auto", "200 ok"),
        ],
        false,
    );
    let destination = vec![
        command_and_reply("OPTS DRS drs", "501 no"),
        command_and_reply("DPSV", "503 not without it"),
    ];
    let destination = script_between(DRS, destination, true);
    let (buffers, warnings) = copy_between_servers(BufferSizing::Drs, source, destination).await;
    assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn between_servers_drs1_is_replaced_by_auto() {
    let source = script_between(DRS, Vec::new(), false);
    let destination = script_between(DRS, Vec::new(), true);
    let (buffers, warnings) = copy_between_servers(BufferSizing::Drs1, source, destination).await;
    assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("no third-party transfers"),
        "{warnings:?}"
    );
}
