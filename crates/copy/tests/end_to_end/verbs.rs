//! The commands ls, stat, rm, mkdir, mv and cksum.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use copy::{Exit, RemoteOptions};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;

use crate::support::{EndToEndServer, file_names};

static OPTIONS: LazyLock<RemoteOptions> = LazyLock::new(|| RemoteOptions {
    timeout: Duration::from_secs(60),
    security: Arc::default(),
});

#[tokio::test(flavor = "multi_thread")]
async fn single_file_commands_list_and_change_files() {
    let server = EndToEndServer::start().await;
    server.store("d/b", b"12345");
    server.store("d/a x", b"1");
    let entries = copy::list(&server.url("d"), &OPTIONS).await.unwrap();
    let listed: Vec<_> = entries.iter().map(|e| e.name.as_slice()).collect();
    assert_eq!(listed, [&b"a x"[..], b"b"]);
    let one = copy::list(&server.url("d/b"), &OPTIONS).await.unwrap();
    assert_eq!((one.len(), one[0].name.as_slice()), (1, &b"b"[..]));
    let entry = copy::stat(&server.url("d/b"), &OPTIONS).await.unwrap();
    assert_eq!((entry.kind, entry.size), (EntryKind::File, Some(5)));

    let url = |path: &str| server.url(path);
    copy::make_dir(&url("m/n/o"), true, &OPTIONS).await.unwrap();
    copy::make_dir(&url("m/n/o"), true, &OPTIONS).await.unwrap();
    let again = copy::make_dir(&url("m"), false, &OPTIONS).await;
    let exists = again.unwrap_err();
    assert_eq!(exists.exit(), Exit::Protocol);
    assert!(exists.to_string().contains("exists already"), "{exists}");
    copy::rename(&url("d/b"), &url("m/n/b"), &OPTIONS)
        .await
        .unwrap();
    assert_eq!(server.read("m/n/b"), b"12345");
    let sum = copy::checksum(&url("m/n/b"), ChecksumAlgorithm::Md5, 1, Some(3), &OPTIONS).await;
    assert_eq!(sum.unwrap(), "289dff07669d7a23de0ef88d2f7129e7");
    assert!(copy::remove(&url("m"), false, &OPTIONS).await.is_err());
    copy::remove(&url("m"), true, &OPTIONS).await.unwrap();
    copy::remove(&url("d/a%20x"), false, &OPTIONS)
        .await
        .unwrap();
    assert_eq!(file_names(&server.root()), ["d"]);
    let missing = copy::stat(&url("nothing"), &OPTIONS).await.unwrap_err();
    assert_eq!(missing.exit(), Exit::NotFound);
    let local = copy::list("/tmp", &OPTIONS).await.unwrap_err();
    assert_eq!(local.exit(), Exit::Usage);
    let root = copy::remove(&url(""), true, &OPTIONS).await.unwrap_err();
    assert_eq!(root.exit(), Exit::Usage);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_command_can_carry_are_listed_and_removed_with_their_directory() {
    let server = EndToEndServer::start().await;
    for name in ["d/a\nb", "d/sub\r/f", "kept/a\nb"] {
        server.store(name, b"x");
    }
    std::os::unix::fs::symlink(server.root().join("kept"), server.root().join("d/l")).unwrap();
    let entries = copy::list(&server.url("d"), &OPTIONS).await.unwrap();
    let listed: Vec<_> = entries.iter().map(|e| e.name.as_slice()).collect();
    assert_eq!(listed, [&b"a?b"[..], b"l", b"sub?"]);
    // A listing shows the other name like this one.
    server.store("d/a?b", b"x");
    copy::remove(&server.url("d"), true, &OPTIONS)
        .await
        .unwrap();
    assert_eq!(file_names(&server.root()), ["kept"]);
    assert_eq!(file_names(&server.root().join("kept")), ["a\nb"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_and_remote_checksums_agree() {
    let server = EndToEndServer::start().await;
    server.store("f", b"123456789");
    let local = server.root().join("f");
    for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
        let there = copy::checksum(&server.url("f"), algorithm, 0, None, &OPTIONS).await;
        let workdir = copy::checksum(local.to_str().unwrap(), algorithm, 0, None, &OPTIONS).await;
        assert_eq!(there.unwrap(), workdir.unwrap(), "{algorithm:?}");
    }
    let crc = copy::checksum(
        &server.url("f"),
        ChecksumAlgorithm::Crc32c,
        0,
        None,
        &OPTIONS,
    )
    .await;
    assert_eq!(crc.unwrap(), "e3069283");
}
