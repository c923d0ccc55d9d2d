//! pyftpdlib: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::tls::PeerTls;
use super::{PeerServer, python};
use crate::matrix::TestStore;
use crate::net;

const SCRIPT: &str = "
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.servers import FTPServer
authorizer = DummyAuthorizer()
authorizer.add_anonymous(sys.argv[2], perm='elradfmwMT')
if len(sys.argv) > 3:
    from pyftpdlib.handlers import TLS_FTPHandler as Handler
    Handler.certfile = sys.argv[3]
    Handler.tls_control_required = True
    Handler.tls_data_required = True
else:
    from pyftpdlib.handlers import FTPHandler as Handler
Handler.authorizer = authorizer
FTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// Path of a Python interpreter that can import pyftpdlib.
pub fn find() -> Result<PathBuf, String> {
    python::with_module("pyftpdlib.servers")
}

/// Path of a Python interpreter that can import pyftpdlib and its TLS.
pub fn find_tls() -> Result<PathBuf, String> {
    python::with_module("OpenSSL.SSL")?;
    find()
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    spawn(store, &[])
}

/// Like [`start`], with TLS for commands and data. Of [`PeerTls`] only the certificate has an effect.
pub fn start_with_tls(store: &TestStore, tls: &PeerTls) -> Result<PeerServer> {
    Ok(spawn(store, &[tls.identity.joined()?])?.scheme("ftps"))
}

fn spawn(store: &TestStore, certificate: &[PathBuf]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        // Newer Pythons print deprecation warnings for modules that pyftpdlib imports.
        .args(["-W", "ignore", "-c", SCRIPT, &port.to_string()])
        .arg(store.root())
        .args(certificate);
    PeerServer::start(&mut command, store, "pyftpdlib", port)
}
