//! Patterns and trees in `ls` and `rm`.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use copy::{Exit, Failure, RemoteOptions};

use crate::support::{EndToEndServer, file_names};

static OPTIONS: LazyLock<RemoteOptions> = LazyLock::new(|| RemoteOptions {
    timeout: Duration::from_secs(60),
    security: Arc::default(),
});

async fn listed(url: &str, recursive: bool) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let mut visit = |entry: copy::RemoteEntry| {
        names.push(String::from_utf8(entry.name).unwrap());
        ControlFlow::Continue(())
    };
    copy::list_each(url, recursive, &OPTIONS, &mut visit).await?;
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_lists_its_entries_and_with_recursion_their_content() {
    let server = EndToEndServer::start().await;
    for path in ["d/a1", "d/a2/x", "d/a2/y/z", "d/b", "d/.a3"] {
        server.store(path, b"1");
    }
    let url = |path: &str| server.url(path);
    assert_eq!(listed(&url("d/a*"), false).await.unwrap(), ["a1", "a2"]);
    let tree = ["a1", "a2", "a2/x", "a2/y", "a2/y/z"];
    assert_eq!(listed(&url("d/a*"), true).await.unwrap(), tree);
    assert_eq!(
        listed(&url("d/a2/"), true).await.unwrap(),
        ["x", "y", "y/z"]
    );
    assert_eq!(listed(&url("d/b"), true).await.unwrap(), ["b"]);
    let nothing = listed(&url("d/c*"), false).await.unwrap_err();
    assert_eq!(nothing.exit(), Exit::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_removes_links_and_not_what_they_point_to() {
    let server = EndToEndServer::start().await;
    server.store("outside/file", b"1");
    server.store("d/l1", b"1");
    let link = |name: &str, target: &str| {
        std::os::unix::fs::symlink(target, server.root().join("d").join(name)).unwrap();
    };
    link("l2", "../outside");
    link("l3", "nowhere");
    let mut results = Vec::new();
    let mut report = |removed| results.push(removed);
    copy::remove_each(&server.url("d/l*"), true, &OPTIONS, &mut report)
        .await
        .unwrap();
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
    assert!(file_names(&server.root().join("d")).is_empty());
    assert!(server.root().join("outside/file").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_and_what_is_around_a_path_are_not_removed_by_any_spelling() {
    let server = EndToEndServer::start().await;
    server.store("d/file", b"1");
    for path in [
        "",
        "/",
        ".",
        "d/..",
        "d/../",
        "%2e",
        "d/%2E%2e/",
        "d/.",
        "d/./.",
    ] {
        let url = server.url(path);
        let failure = copy::remove(&url, true, &OPTIONS).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage, "{path}: {failure}");
        let mut report = |removed| panic!("{path}: {removed:?}");
        let failure = copy::remove_each(&url, true, &OPTIONS, &mut report)
            .await
            .unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage, "{path}: {failure}");
        assert!(server.root().join("d/file").exists(), "{path}");
    }
}
