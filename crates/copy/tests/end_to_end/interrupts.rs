//! Copies that are ended early.

use std::sync::Arc;

use copy::{CopyEvent, CopyInterrupt, Exit};

use crate::support::{EndToEndServer, EventRecorder, options, random_bytes, rate_limited};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_returns_a_summary_with_the_bytes_in_flight() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(16 << 20));
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("f");
    let interrupt = CopyInterrupt::default();
    let interruptible = options().with(|o| {
        o.interrupt = interrupt.clone();
        o.streams.transfer = rate_limited(4 << 20);
    });
    let events = Arc::new(EventRecorder::default());
    let sources = [server.url("f")];
    let copying = copy::copy(
        &sources,
        to.to_str().unwrap(),
        &interruptible,
        events.clone(),
    );
    let ending = async {
        let is_moving = |event: &CopyEvent| matches!(event, CopyEvent::Progress(p) if p.bytes > 0);
        events.wait_until(is_moving).await;
        interrupt.trigger();
    };
    let (summary, ()) = tokio::join!(copying, ending);
    assert_eq!(summary.exit, Exit::Interrupted);
    assert!((1..16 << 20).contains(&summary.bytes), "{summary:?}");
    assert_eq!((summary.files, summary.failed), (0, 0));
    assert!(!to.exists());
    // Nothing failed, so no event says so.
    assert_eq!(
        events.count(|event| matches!(event, CopyEvent::Failed { .. })),
        0
    );
    // A later copy with the same interrupt does not begin.
    let summary = copy::copy(&sources, to.to_str().unwrap(), &interruptible, events).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Interrupted, 0));
}
