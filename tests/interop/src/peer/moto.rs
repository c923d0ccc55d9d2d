//! moto, a server in Python with the whole protocol of S3 in memory. It does not compare signatures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::curl::Curl;
use super::{PeerServer, peers_folder, python};
use crate::matrix::TestStore;
use crate::net;
use crate::run;

/// Path of a Python interpreter that can run it.
pub fn find() -> Result<PathBuf, String> {
    let packages = packages()?;
    if !packages.join("moto").is_dir() {
        return Err(format!(
            "{} has no moto; run tests/install-peers",
            packages.display()
        ));
    }
    Curl::find()?;
    python::with_module("json")
}

/// Where `tests/install-peers` puts it and what it needs.
fn packages() -> Result<PathBuf, String> {
    Ok(peers_folder()?.join("moto"))
}

/// A server on 127.0.0.1 with these buckets.
pub fn start(store: &TestStore, buckets: &[&str]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .env("PYTHONPATH", packages().map_err(anyhow::Error::msg)?)
        .args(["-W", "ignore", "-m", "moto.server", "-H", net::HOST])
        .args(["-p", &port.to_string()]);
    let server = PeerServer::start(&mut command, store, "moto", port)?.scheme("http");
    let curl = Curl::find().map_err(anyhow::Error::msg)?;
    for bucket in buckets {
        let url = server.url(bucket);
        let made = curl.run(&["-f", "-X", "PUT", &url])?.expect_success()?;
        ensure!(made.code == Some(0), "no bucket {bucket}");
    }
    Ok(server)
}

/// The begin of a program with Amazon's own library: `s3` speaks with the server, `at` names an object of a file.
const CLIENT: &str = "\
import sys, boto3
url, path, bucket, key, choice = sys.argv[1:]
s3 = boto3.client('s3', endpoint_url=url, region_name='us-east-1', aws_access_key_id='k', aws_secret_access_key='s')
at = dict(Bucket=bucket, Key=key)
";

/// Has Amazon's own library store a file in parts, of which the server keeps a checksum of this algorithm (`SHA256`).
pub fn store_in_parts(
    server: &PeerServer,
    file: &Path,
    (bucket, key): (&str, &str),
    algorithm: &str,
) -> Result<()> {
    const STORE: &str = "\
upload = s3.create_multipart_upload(ChecksumAlgorithm=choice, **at)['UploadId']
parts = []
with open(path, 'rb') as file:
    while block := file.read(6 << 20):
        number = len(parts) + 1
        part = s3.upload_part(Body=block, PartNumber=number, UploadId=upload, ChecksumAlgorithm=choice, **at)
        parts.append(dict(ETag=part['ETag'], PartNumber=number))
s3.complete_multipart_upload(UploadId=upload, MultipartUpload=dict(Parts=parts), **at)
";
    with_library(server, STORE, file, (bucket, key), algorithm)
}

/// Has Amazon's own library store a file in an archive, and perhaps restore a copy of it.
pub fn store_in_archive(
    server: &PeerServer,
    file: &Path,
    (bucket, key): (&str, &str),
    is_restored: bool,
) -> Result<()> {
    const STORE: &str = "\
with open(path, 'rb') as file:
    s3.put_object(Body=file, StorageClass='GLACIER', **at)
if choice == 'true':
    s3.restore_object(RestoreRequest=dict(Days=1), **at)
";
    let choice = is_restored.to_string();
    with_library(server, STORE, file, (bucket, key), &choice)
}

fn with_library(
    server: &PeerServer,
    store: &str,
    file: &Path,
    (bucket, key): (&str, &str),
    choice: &str,
) -> Result<()> {
    let program = format!("{CLIENT}{store}");
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .env("PYTHONPATH", packages().map_err(anyhow::Error::msg)?)
        .args(["-W", "ignore", "-c", &program, &server.url("")])
        .arg(file)
        .args([bucket, key, choice]);
    run::run(&mut command)?.expect_success().map(drop)
}
