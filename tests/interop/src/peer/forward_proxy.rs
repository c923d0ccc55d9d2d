//! Proxies that open connections: tinyproxy (CONNECT) and microsocks (SOCKS5).
//!
//! Both connect from [`FROM`]. Servers that take data connections only from the address of the control connection thus
//! show that both came through the proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{START_LIMIT, find_unpacked};
use crate::net;
use crate::process::ServerProcess;
use crate::scratch::ScratchFolder;

/// The address that the proxies connect from.
pub const FROM: &str = "127.0.0.2";

/// User and password at the proxies.
const LOGIN: (&str, &str) = ("ann", "secret");

/// A running proxy, killed on drop.
#[derive(Debug)]
pub struct ForwardProxy {
    daemon: ServerProcess,
    url: String,
    _scratch: ScratchFolder,
}

/// Path of tinyproxy.
pub fn find_tinyproxy() -> Result<PathBuf, String> {
    find_unpacked("tinyproxy-bin", "usr/bin/tinyproxy")
}

/// Path of microsocks.
pub fn find_microsocks() -> Result<PathBuf, String> {
    find_unpacked("microsocks", "usr/bin/microsocks")
}

/// Starts tinyproxy with a login.
pub fn start_tinyproxy() -> Result<ForwardProxy> {
    let port = net::free_port()?;
    let scratch = ScratchFolder::new()?;
    let (user, password) = LOGIN;
    let settings = format!(
        "Port {port}\nListen {}\nBind {FROM}\nBasicAuth {user} {password}\nMaxClients 500\n\
         Timeout 600\nLogLevel Connect\n",
        net::HOST
    );
    let file = scratch.file("tinyproxy.conf", settings.as_bytes())?;
    let mut command = Command::new(find_tinyproxy().map_err(anyhow::Error::msg)?);
    command.arg("-d").arg("-c").arg(file);
    ForwardProxy::start(&mut command, scratch, "http", port)
}

/// Starts microsocks with a login. It resolves names if the scheme is `socks5h`.
pub fn start_microsocks(scheme: &str) -> Result<ForwardProxy> {
    let port = net::free_port()?;
    let (user, password) = LOGIN;
    let mut command = Command::new(find_microsocks().map_err(anyhow::Error::msg)?);
    command.args(["-i", net::HOST, "-b", FROM, "-u", user, "-P", password]);
    command.args(["-p", &port.to_string()]);
    ForwardProxy::start(&mut command, ScratchFolder::new()?, scheme, port)
}

impl ForwardProxy {
    fn start(
        command: &mut Command,
        scratch: ScratchFolder,
        scheme: &str,
        port: u16,
    ) -> Result<Self> {
        let address = SocketAddr::new(net::HOST.parse()?, port);
        let mut daemon = ServerProcess::spawn(command, scratch.path(), "proxy")?;
        daemon
            .wait_until("listener", START_LIMIT, |_| {
                net::is_listening(address).then_some(())
            })
            .context("cannot start the proxy")?;
        let (user, password) = LOGIN;
        Ok(Self {
            daemon,
            url: format!("{scheme}://{user}:{password}@{address}"),
            _scratch: scratch,
        })
    }

    /// Its URL with the login, for `--proxy`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its output so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }
}
