//! Asks all data nodes now and then how loaded they are, for monitors: transfers ask those that they use themselves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::NodeDirectory;
use super::set::reach;
use crate::secure::SecurityMaterial;

/// How often each node is asked.
const INTERVAL: Duration = Duration::from_secs(10);

/// Runs for as long as the front end serves monitors. What it finds does not keep transfers from trying a node.
pub(crate) async fn watch_nodes(
    directory: Arc<NodeDirectory>,
    material: watch::Receiver<Arc<SecurityMaterial>>,
) {
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let mut questions = JoinSet::new();
        for name in directory.nodes() {
            let (directory, material) = (Arc::clone(&directory), Arc::clone(&material.borrow()));
            questions.spawn(async move {
                match reach(&name, &material).await {
                    Ok((_, load)) => directory.note_load(&name, load),
                    Err(error) => {
                        tracing::debug!(node = name, %error, "a data node does not answer");
                        directory.note_unreachable(&name);
                    }
                }
            });
        }
        while questions.join_next().await.is_some() {}
    }
}
