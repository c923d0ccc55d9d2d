//! Walks over sessions that are lost.

use std::sync::{Arc, Mutex};

use super::walk_tree;
use crate::batch::BatchContext;
use crate::batch::tests::options;
use crate::location::Location;
use crate::session::scripted_server::ScriptedAction::{
    ExpectLine, ExpectPassiveAndReply, SendData, SendLine,
};
use crate::session::scripted_server::{ScriptedFtpServer, pipelined_login_script};
use crate::tree::{TreeEntry, TreeVisitor, join_path};
use crate::{CopyEvent, CopyFailure, CopyObserver, CopyOptions, SymlinkPolicy};

#[derive(Default)]
struct VisitedPaths(Mutex<Vec<String>>);

impl TreeVisitor for VisitedPaths {
    fn visit(&self, directory: &[u8], name: &[u8], _: TreeEntry) -> Result<(), CopyFailure> {
        let path = String::from_utf8(join_path(directory, name)).unwrap();
        self.0.lock().unwrap().push(path);
        Ok(())
    }
}

struct IgnoringObserver;

impl CopyObserver for IgnoringObserver {
    fn on_event(&self, _: CopyEvent) {}
}

#[tokio::test]
async fn a_session_that_is_lost_while_it_lists_a_whole_tree_is_replaced() {
    let feat = "211-x\n PARALLEL\n MLST type*;size*;unix.slink*;\n MLSR\n211 End.";
    let begin = [
        pipelined_login_script(feat, &[]),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("MLSR /t"),
            SendLine("150 go"),
        ],
    ]
    .concat();
    let listing = b"type=dir; d\r\ntype=file;size=1; d/a\r\n".to_vec();
    let whole = [&begin[..], &[SendData(listing), SendLine("226 done")]].concat();
    // The first connection ends without data and without a reply.
    let peer = ScriptedFtpServer::start_sessions(vec![begin, whole]).await;
    let options = CopyOptions {
        retries: 1,
        concurrency: Some(1),
        ..options()
    };
    let ctx = Arc::new(BatchContext::new(options, Arc::new(IgnoringObserver)).unwrap());
    let visited = Arc::new(VisitedPaths::default());
    let top = Location::Remote {
        server: peer.server.clone(),
        path: b"/t".to_vec(),
    };
    let visitor = Arc::clone(&visited) as Arc<dyn TreeVisitor>;
    let walked = walk_tree(&ctx, (&top, SymlinkPolicy::Skip), visitor).await;
    walked.unwrap();
    assert_eq!(*visited.0.lock().unwrap(), ["d", "d/a"]);
    drop(ctx);
    peer.finish().await;
}
