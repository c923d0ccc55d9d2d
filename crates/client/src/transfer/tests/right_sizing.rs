//! Dynamic right-sizing: what is asked of whom, and what a refusal costs.

use std::net::IpAddr;

use data::drs::DrsEndpoint;
use proto::command::Command;
use proto::sizing::BufferSizing;
use tokio::io::AsyncReadExt;

use super::*;
use proto::sizing::SocketBuffers;

const DRS: &str =
    "211-x\n PARALLEL\n SIZE\n ERET\n REST STREAM\n DRS auto;kernel;drs1;drs;\n211 End.";
const NONCE: &str = "000102030405060708090a0b0c0d0eff";

fn sized(sizing: BufferSizing) -> TransferSpec {
    let mut spec = spec();
    spec.options.buffers = SocketBuffers::sized_by(sizing);
    spec
}

fn got(bytes: &[u8]) -> Vec<ScriptedAction> {
    vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("RETR /f"),
        SendLine("150 go"),
        SendData(bytes.to_vec()),
        SendLine("226 done"),
    ]
}

#[tokio::test]
async fn a_stock_server_hears_nothing_new_and_the_user_is_told_once() {
    for sizing in [BufferSizing::Drs, BufferSizing::Drs1] {
        let acts = vec![
            login_script_with_feat(GRIDFTP),
            got(b"hello"),
            got(b"hello"),
        ];
        let (mut session, fake) = opened(acts).await;
        let attempt = fetch(&mut session, &sink(), &sized(sizing)).await.unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        let [warning] = attempt.warnings.as_slice() else {
            panic!("{:?}", attempt.warnings);
        };
        assert!(
            warning.contains("does not offer") && warning.contains("auto"),
            "{warning}"
        );
        let again = fetch(&mut session, &sink(), &sized(sizing)).await.unwrap();
        assert_eq!(again.warnings, Vec::<String>::new());
        fake.finish().await;
    }
}

#[tokio::test]
async fn one_that_offers_it_hears_nothing_when_it_is_not_wanted() {
    let (mut session, fake) = opened(vec![
        login_script_with_feat(DRS),
        got(b"hello"),
        command_and_reply("OPTS DRS kernel", "200 ok"),
        got(b"hello"),
        got(b"hello"),
        command_and_reply("OPTS DRS auto", "200 ok"),
        got(b"hello"),
    ])
    .await;
    for sizing in [
        BufferSizing::Auto,
        BufferSizing::Kernel,
        BufferSizing::Kernel,
        BufferSizing::Auto,
    ] {
        let attempt = fetch(&mut session, &sink(), &sized(sizing)).await.unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(sizing));
        assert_eq!(attempt.warnings, Vec::<String>::new());
    }
    fake.finish().await;
}

#[tokio::test]
async fn a_policy_that_is_refused_after_all_costs_a_warning() {
    let (mut session, fake) = opened(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "501 not today"),
        command_and_reply("DPSV", "503 not without it"),
        got(b"hello"),
        got(b"hello"),
    ])
    .await;
    for warnings in [1, 0] {
        let attempt = fetch(&mut session, &sink(), &sized(BufferSizing::Drs))
            .await
            .unwrap();
        assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
    }
    fake.finish().await;
}

#[tokio::test]
async fn a_channel_that_is_refused_or_told_in_no_known_form_is_done_without() {
    for reply in [
        "500 what?",
        "502 not here",
        "229 Entering DRS Passive Mode (|||5|)",
    ] {
        let (mut session, fake) = opened(vec![
            login_script_with_feat(DRS),
            command_and_reply("OPTS DRS drs", "200 ok"),
            command_and_reply("DPSV", reply),
            got(b"hello"),
            got(b"hello"),
        ])
        .await;
        for warnings in [1, 0] {
            let attempt = fetch(&mut session, &sink(), &sized(BufferSizing::Drs))
                .await
                .unwrap();
            assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Drs));
            assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
        }
        fake.finish().await;
    }
}

#[tokio::test]
async fn a_channel_that_cannot_be_had_now_is_asked_for_again() {
    let told = format!("229 Entering DRS Passive Mode (|1|127.0.0.1|9|{NONCE}|)").leak();
    let (mut session, fake) = opened(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "200 ok"),
        command_and_reply("DPSV", "425 no port"),
        got(b"hello"),
        command_and_reply("DPSV", told),
        got(b"hello"),
    ])
    .await;
    for warnings in [1, 0] {
        let attempt = fetch(&mut session, &sink(), &sized(BufferSizing::Drs))
            .await
            .unwrap();
        assert_eq!(attempt.warnings.len(), warnings, "{:?}", attempt.warnings);
    }
    fake.finish().await;
}

#[tokio::test]
async fn the_channel_goes_where_the_data_goes_whatever_host_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = format!("229 Entering DRS Passive Mode (|1|192.0.2.9|{port}|{NONCE}|)").leak();
    let (mut session, fake) = opened(vec![
        login_script_with_feat(DRS),
        command_and_reply("OPTS DRS drs", "200 ok"),
        command_and_reply("DPSV", told),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            AcceptAndHold,
        ],
        vec![Sleep(500), SendLine("226 done")],
    ])
    .await;
    let spec = sized(BufferSizing::Drs);
    let sink = sink();
    let fetching = fetch(&mut session, &sink, &spec);
    let greeted = async {
        let (mut stream, from) = listener.accept().await.unwrap();
        let mut line = [0; 38];
        stream.read_exact(&mut line).await.unwrap();
        (from.ip().to_string(), line)
    };
    let (attempt, (from, line)) = tokio::join!(fetching, greeted);
    attempt.unwrap();
    assert_eq!(from, "127.0.0.1");
    assert_eq!(line[..], *format!("DRS {NONCE}\r\n").as_bytes());
    fake.finish().await;
    let endpoint = session.drs_endpoint().unwrap();
    // From the control connection's address: servers compare the two.
    let bound = matches!(*endpoint, DrsEndpoint::Connecting { local: Some(ip), .. } if ip == from.parse::<IpAddr>().unwrap());
    assert!(bound, "{endpoint:?}");
}

#[tokio::test]
async fn a_channel_that_leads_nowhere_does_not_hurt() {
    // Nobody listens there; the address is asked for once a session.
    let nowhere = format!("229 Entering DRS Passive Mode (|1|127.0.0.1|9|{NONCE}|)").leak();
    let (mut session, fake) = opened(vec![
        login_script_with_feat(DRS),
        // Both are sent before either is answered: a round trip less.
        vec![
            ExpectLine("OPTS DRS drs"),
            ExpectLine("DPSV"),
            SendLine("200 ok"),
            SendLine(nowhere),
        ],
        got(b"hello"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![SendLine("150 go"), ReceiveData, SendLine("226 done")],
    ])
    .await;
    let spec = sized(BufferSizing::Drs);
    let attempt = fetch(&mut session, &sink(), &spec).await.unwrap();
    assert_eq!(attempt.warnings, Vec::<String>::new());
    store(&mut session, b"bytes", &spec).await.unwrap();
    assert_eq!(fake.finish().await, b"bytes");
}

#[tokio::test]
async fn sizes_of_a_receiving_server_are_no_final_reply() {
    let (mut session, fake) = opened(vec![
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
    let attempt = store(&mut session, b"bytes", &sized(BufferSizing::Drs1))
        .await
        .unwrap();
    assert_eq!(attempt.buffers, SocketBuffers::sized_by(BufferSizing::Drs1));
    assert_eq!(fake.finish().await, b"bytes");
}

/// Says two sizes into a transfer; the second comes too late for it.
async fn tell_sizes(session: &mut ClientSession) {
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
async fn answers_to_sizes_that_cross_the_end_are_left_out() {
    let (mut session, fake) = opened(vec![
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
    tell_sizes(&mut session).await;
    assert!(session.is_usable());
    session.delete(b"/g").await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn a_session_whose_place_is_not_found_is_not_used_again() {
    let (mut session, fake) = opened(vec![
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
    tell_sizes(&mut session).await;
    assert!(!session.is_usable());
    assert!(session.delete(b"/g").await.unwrap_err().transient);
    fake.finish().await;
}

#[tokio::test]
async fn what_a_server_says_of_its_limits_counts_only_where_it_is_known_to() {
    const REMARK: &str = "226 Transfer Complete. Raise net.ipv4.tcp_wmem.";
    for (features, remarks) in [(DRS, 1), (GRIDFTP, 0)] {
        let (mut session, fake) = opened(vec![
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
        fake.finish().await;
    }
}

/// One of two servers in a transfer from `/s` to `/d`.
fn between(
    features: &'static str,
    before: Vec<Vec<ScriptedAction>>,
    receives: bool,
) -> Vec<Vec<ScriptedAction>> {
    let mut acts = vec![login_script_with_feat(features)];
    acts.extend(before);
    acts.push(match receives {
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
    acts.push(vec![SendLine("150 go"), SendLine("226 done")]);
    acts
}

async fn pass_on(
    sizing: BufferSizing,
    source: Vec<Vec<ScriptedAction>>,
    destination: Vec<Vec<ScriptedAction>>,
) -> (SocketBuffers, Vec<String>) {
    let (mut a, first) = opened(source).await;
    let (mut b, second) = opened(destination).await;
    let spec = TransferSpec {
        size: Some(5),
        ..sized(sizing)
    };
    let attempt = third_party(&mut a, b"/s", &mut b, b"/d", &spec, &|_| ()).await;
    let attempt = attempt.unwrap();
    first.finish().await;
    second.finish().await;
    (attempt.buffers, attempt.warnings)
}

#[tokio::test]
async fn between_servers_the_destination_listens_and_the_source_is_told() {
    // The host is that of the data, whatever the server says.
    let told = format!("229 Entering DRS Passive Mode (|1|192.0.2.9|41000|{NONCE}|)").leak();
    let passed_on = format!("DPRT |1|127.0.0.1|41000|{NONCE}|\r\n").leak();
    let drs = || command_and_reply("OPTS DRS drs", "200 ok");
    let source = between(
        DRS,
        vec![drs(), command_and_reply(passed_on, "200 ok")],
        false,
    );
    let destination = between(DRS, vec![drs(), command_and_reply("DPSV", told)], true);
    let (buffers, warnings) = pass_on(BufferSizing::Drs, source, destination).await;
    assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Drs));
    assert_eq!(warnings, Vec::<String>::new());
}

#[tokio::test]
async fn between_servers_each_does_its_own_when_there_is_no_channel() {
    let told = format!("229 Entering DRS Passive Mode (|1|192.0.2.9|41000|{NONCE}|)").leak();
    let passed_on = format!("DPRT |1|127.0.0.1|41000|{NONCE}|\r\n").leak();
    let both = || {
        [
            command_and_reply("OPTS DRS drs", "200 ok"),
            command_and_reply("OPTS DRS auto", "200 ok"),
        ]
    };
    for reply in ["425 no port", "500 what?"] {
        let [drs, auto] = both();
        let destination = between(DRS, vec![drs, command_and_reply("DPSV", reply), auto], true);
        let source = between(DRS, both().into(), false);
        let (buffers, warnings) = pass_on(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
    for reply in ["450 not now", "501 not there"] {
        let [drs, auto] = both();
        let source = between(
            DRS,
            vec![drs, command_and_reply(passed_on, reply), auto],
            false,
        );
        let [drs, auto] = both();
        let address = vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ];
        let before = vec![drs, command_and_reply("DPSV", told), address, auto];
        let destination = between(DRS, before, true);
        let (buffers, warnings) = pass_on(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[tokio::test]
async fn between_servers_both_must_offer_it() {
    for (from, to) in [(GRIDFTP, DRS), (DRS, GRIDFTP)] {
        let source = between(from, Vec::new(), false);
        let destination = between(to, Vec::new(), true);
        let (buffers, warnings) = pass_on(BufferSizing::Drs, source, destination).await;
        assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[tokio::test]
async fn between_servers_a_late_refusal_is_taken_back_at_the_other() {
    let source = between(
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
    let destination = between(DRS, destination, true);
    let (buffers, warnings) = pass_on(BufferSizing::Drs, source, destination).await;
    assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn between_servers_the_first_drsftp_is_declined_here() {
    let source = between(DRS, Vec::new(), false);
    let destination = between(DRS, Vec::new(), true);
    let (buffers, warnings) = pass_on(BufferSizing::Drs1, source, destination).await;
    assert_eq!(buffers, SocketBuffers::sized_by(BufferSizing::Auto));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no third party"), "{warnings:?}");
}
