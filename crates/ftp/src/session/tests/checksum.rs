//! Checksums that the server computes.

use proto::checksum::ChecksumAlgorithm;

use super::*;

const NO_SUCH_FILE: &str = "500-Command failed\n500 No such file or directory";

#[tokio::test]
async fn a_damaged_checksum_reply_is_requested_again() {
    let feat = "211-x\n CKSM CRC32C:1;\n211 End.";
    let question = "CKSM CRC32C 0 -1 /f";
    let actions = script([
        login_script_with_feat(feat),
        command_and_reply("OPTS CKSM Markers=", "200 ok"),
        command_and_reply(question, "213 8Nbe7658"),
        command_and_reply(question, "213 8bbe7658"),
        command_and_reply(question, "501 CKSM CR#32C: no such algorithm"),
        command_and_reply(question, "213 8bbe7658"),
        command_and_reply(question, "213 8Nbe7658"),
        command_and_reply(question, "213 x"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    for _ in 0..2 {
        let checksum = session
            .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
            .await;
        assert_eq!(checksum.unwrap(), "8bbe7658");
    }
    let failure = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await
        .unwrap_err();
    // Such a server does not have the checksum. That is no damage, and it is not asked again.
    assert_eq!(failure.kind(), FailureKind::Protocol);
    assert!(!failure.may_retry());
    assert!(session.features().checksum_algorithms.is_empty());
    peer.finish().await;
}

#[tokio::test]
async fn the_checksum_is_read_from_any_line_and_never_from_the_name() {
    let quoted = "XCRC \"/cafe 1 b\"";
    let actions = script([
        login_script_with_feat("211-x\n XCRC\n211 End."),
        command_and_reply("XCRC /f\r\n", "250-Computing CRC32 digest\n250 FE09E972"),
        command_and_reply(quoted, "250 XCRC \"/cafe 1 b\" FE09E972"),
        // Another server takes the quotes for a part of the name.
        command_and_reply(quoted, "550 \"/cafe 1 b\": No such file"),
        command_and_reply("XCRC /cafe 1 b\r\n", "250 /cafe 1 b FE09E972"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    for path in ["/f", "/cafe 1 b", "/cafe 1 b"] {
        let checksum = session
            .checksum(ChecksumAlgorithm::Crc32, 0, None, path.as_bytes())
            .await;
        assert_eq!(checksum.unwrap(), "fe09e972", "{path}");
    }
    peer.finish().await;
}

/// A checksum that takes longer than the reply timeout, with markers in between.
async fn long_checksum() -> Result<(String, ClientSession, ScriptedFtpServer), Failure> {
    let feat = "211-x\n CKSM CRC32C:1;MD5:2;\n211 End.";
    let marker = "113-Status Marker\n Timestamp: 1.0\n Bytes Processed: 5\n113 End.";
    let actions = script([
        login_script_with_feat(feat),
        command_and_reply("OPTS CKSM Markers=", "200 ok"),
        vec![ExpectLine("CKSM CRC32C 0 -1 /f")],
        vec![
            Sleep(250),
            SendLine(marker),
            Sleep(250),
            SendLine(marker),
            Sleep(250),
        ],
        vec![SendLine("213 ABCDEF")],
        command_and_reply("CKSM MD5 0 5 /f", NO_SUCH_FILE),
        command_and_reply("CKSM MD5 0 5 /f", NO_SUCH_FILE),
    ]);
    let peer = ScriptedFtpServer::start_session(actions).await;
    let reply_timeout = Duration::from_millis(400);
    let mut session = ClientSession::open(&peer.server, reply_timeout).await?;
    let checksum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await?;
    Ok((checksum, session, peer))
}

#[tokio::test]
async fn checksum_markers_restart_the_reply_timeout() {
    let mut tries = 0;
    let (checksum, mut session, peer) = loop {
        match long_checksum().await {
            Ok(long) => break long,
            // A busy machine may delay a marker, but not every time.
            Err(failure) => assert!(tries < 5, "{failure}"),
        }
        tries += 1;
    };
    assert_eq!(checksum, "00abcdef");
    let failure = session
        .checksum(ChecksumAlgorithm::Md5, 0, Some(5), b"/f")
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    let cannot = session
        .checksum(ChecksumAlgorithm::Sha1, 0, None, b"/f")
        .await
        .unwrap_err();
    assert_eq!(cannot.kind(), FailureKind::Protocol);
    peer.finish().await;
}
