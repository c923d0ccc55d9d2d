//! pyftpdlib: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, python};
use crate::matrix::TestStore;
use crate::net;

const SCRIPT: &str = "
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
authorizer = DummyAuthorizer()
authorizer.add_anonymous(sys.argv[2], perm='elradfmwMT')
class Handler(FTPHandler):
    pass
Handler.authorizer = authorizer
FTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// Path of a Python interpreter that can import pyftpdlib.
pub fn find() -> Result<PathBuf, String> {
    python::with_module("pyftpdlib.servers")
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        // Newer Pythons print deprecation warnings for modules that pyftpdlib imports.
        .args(["-W", "ignore", "-c", SCRIPT, &port.to_string()])
        .arg(store.root());
    PeerServer::start(&mut command, store, "pyftpdlib", port)
}
