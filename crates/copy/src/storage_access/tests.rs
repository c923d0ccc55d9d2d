use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use server::config::{Anonymous, ServerConfig};
use server::{Shutdown, ShutdownHandle};

use super::*;
use crate::storage::memory::MemoryStore;
use crate::storage::s3::bucket_server::{BUCKET, BucketServer};
use crate::storage::{conformance, webdav};
use ftp::location::Location;

async fn open(id: &StorageId) -> Box<dyn Storage> {
    let access = StorageAccess {
        timeout: Duration::from_secs(60),
        foreign_data: false,
        listing_use: ListingUse::Reading,
        sync_policy: SyncPolicy::File,
        trees: Arc::default(),
    };
    access.open(id, SessionOpening::default()).await.unwrap()
}

async fn named(url: &str) -> Box<dyn Storage> {
    open(&Location::parse(url).unwrap().storage_id()).await
}

#[tokio::test]
async fn local_files_conform() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().as_os_str().as_bytes();
    conformance::check(&mut *open(&StorageId::LocalFiles).await, top).await;
}

#[tokio::test]
async fn in_memory_storages_conform() {
    conformance::check(&mut *named("http://conforming.memory.invalid/").await, b"/").await;
    MemoryStore::named("plain and conforming").remove_capabilities();
    let mut plain = memory::MemoryStorage::open("plain and conforming");
    conformance::check(&mut plain, b"/").await;
}

#[tokio::test]
async fn an_ftp_server_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let (address, _running) = serve(&dir).await;
    conformance::check(&mut *named(&format!("ftp://{address}/")).await, b"/").await;
}

#[tokio::test]
async fn a_webdav_server_conforms() {
    let server = webdav::WebDavServer::start();
    conformance::check(&mut *named(&server.url("/")).await, b"/").await;
    // Below a directory, and without optional headers.
    let plain = webdav::WebDavServer::start();
    plain.omit_digests_and_etags();
    let mut storage = named(&plain.url("/")).await;
    assert!(storage.make_dir(b"/a place").await.unwrap());
    conformance::check(&mut *storage, b"/a place").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_conforms() {
    let server = BucketServer::start();
    let open = || {
        let timeout = Duration::from_secs(60);
        S3Storage::new(BUCKET, server.settings(), &Arc::default(), timeout)
    };
    conformance::check(&mut open(), b"/").await;
    // Below a directory.
    let mut storage = open();
    assert!(storage.make_dir(b"/a place").await.unwrap());
    conformance::check(&mut storage, b"/a place").await;
}

async fn serve(dir: &tempfile::TempDir) -> (SocketAddr, ShutdownHandle) {
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        root: dir.path().to_owned(),
        anonymous: Some(Anonymous::Rw),
        ..ServerConfig::default()
    };
    let (handle, shutdown) = Shutdown::manual();
    let (send_address, address) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let ready = |address| {
            let _ = send_address.send(address);
        };
        server::serve(config, ready, shutdown).await.unwrap();
    });
    (address.await.unwrap(), handle)
}
