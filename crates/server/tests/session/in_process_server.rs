//! A server in this process with its own port and root.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proto::path::VPath;
use proto::server::AccountRights;
use server::config::{Anonymous, ServerConfig};
use server::users::{self, UserAccount};
use server::{ReloadRequests, ServeError, ServerAnnouncement, ShutdownHandle};
use tempfile::TempDir;
use units::splitmix;

use super::client::ControlClient;
use crate::serving::{ServerThread, start_server};

/// The user that [`InProcessServer::users`] makes.
pub(crate) const USER: &str = "ann";
/// The user's password.
pub(crate) const PASSWORD: &str = "correct horse";

pub(crate) struct InProcessServer {
    pub(crate) address: SocketAddr,
    pub(crate) announcement: ServerAnnouncement,
    /// The settings that the server was started with.
    pub(crate) config: ServerConfig,
    pub(crate) scratch: TempDir,
    pub(crate) reloads: tokio::sync::mpsc::Sender<ServerConfig>,
    shutdown: ShutdownHandle,
    thread: Option<ServerThread>,
}

impl InProcessServer {
    /// Starts a server whose anonymous sessions may write.
    pub(crate) fn start() -> Self {
        Self::with_config(|_| {})
    }

    /// Starts a server on `::1`.
    pub(crate) fn on_v6() -> Self {
        Self::with_config(|config| config.listen = (Ipv6Addr::LOCALHOST, 0).into())
    }

    /// Starts a server with changed settings.
    pub(crate) fn with_config(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut config = ServerConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            root,
            anonymous: Some(Anonymous::Rw),
            transfer_log: Some(scratch.path().join("transfers.jsonl")),
            ..ServerConfig::default()
        };
        config.transfer.stall = Duration::from_secs(60);
        change(&mut config);
        if config.users.is_some() {
            let users = scratch.path().join("users");
            add_user(&users);
            config.users = Some(users);
        }
        let (reloads, requests) = ReloadRequests::manual();
        let (announcement, shutdown, thread) = start_server(config.clone(), requests);
        Self {
            address: announcement.address,
            announcement,
            config,
            scratch,
            reloads,
            shutdown,
            thread: Some(thread),
        }
    }

    /// Starts a server whose anonymous sessions may read, and where [`USER`] may write and use third
    /// hosts.
    pub(crate) fn with_users() -> Self {
        Self::with_config(|config| {
            config.anonymous = Some(Anonymous::Ro);
            config.users = Some(PathBuf::from("to be made"));
        })
    }

    /// Connects a client and reads the greeting.
    pub(crate) fn connect(&self) -> ControlClient {
        ControlClient::connect(self.address)
    }

    /// Connects a client, logs in as anonymous and sets TYPE I.
    pub(crate) fn anonymous_client(&self) -> ControlClient {
        let mut client = self.connect();
        client.log_in("anonymous", "test@");
        client.expect_reply("TYPE I", 200);
        client
    }

    /// Connects a client, logs in as [`USER`] and sets TYPE I.
    pub(crate) fn user_client(&self) -> ControlClient {
        let mut client = self.connect();
        client.log_in(USER, PASSWORD);
        client.expect_reply("TYPE I", 200);
        client
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("root").join(name)
    }

    /// Creates a file of `size` bytes in the root; returns its content.
    pub(crate) fn create_file(&self, name: &str, size: usize) -> Vec<u8> {
        let bytes = test_bytes(size);
        fs::write(self.path(name), &bytes).unwrap();
        bytes
    }

    pub(crate) fn read_file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The records of the transfer log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("transfers.jsonl")).unwrap()
    }

    /// Requests a stop; does not wait for it.
    pub(crate) fn request_stop(&self) {
        self.shutdown.request();
    }

    /// Waits for the end of the server.
    pub(crate) fn wait_for_end(mut self) -> Result<(), ServeError> {
        let thread = self.thread.take().unwrap();
        eventually("the server ends", || thread.is_finished());
        thread.join().unwrap()
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        self.shutdown.request();
        self.shutdown.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn add_user(file: &std::path::Path) {
    let account = UserAccount {
        name: USER.to_owned(),
        root: None,
        rights: AccountRights {
            write: true,
            third_party: true,
        },
        home: VPath::root(),
    };
    users::add(file, &account, PASSWORD.as_bytes()).unwrap();
}

/// Pseudo-random bytes, so that misplaced blocks are noticed.
pub(crate) fn test_bytes(size: usize) -> Vec<u8> {
    splitmix::bytes(1, size)
}

/// Waits until a condition holds; the timeout allows for a busy machine.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
