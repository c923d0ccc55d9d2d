//! Requests to a bucket from many threads: keys that are renewed, the region, and connections that are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferSettings;
use ftp::failure::Operation;
use ftp::{ConnectionSecurity, Failure};
use parking_lot::Mutex;

use super::super::bucket::S3Bucket;
use super::super::changes::PlaceInBucket;
use super::super::origin;
use super::super::requests::region_of;
use super::super::settings::S3Settings;
use super::super::temporary_keys::TemporaryKey;
use crate::storage::http::client::{HttpClient, HttpOrigin};

/// Most connections that are kept for the next request.
const MAX_IDLE: usize = 64;
/// How often a request is sent that a lost connection or a busy server has failed.
pub(super) const ATTEMPTS: u32 = 4;
/// The wait before it is sent again; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest silence of a server that copies an object.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longest such wait, whatever the server asks for.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Access to a bucket.
#[derive(Debug)]
pub(super) struct BucketAccess {
    name: String,
    security: Arc<ConnectionSecurity>,
    pub(super) transfer: TransferSettings,
    state: Mutex<AccessState>,
}

#[derive(Debug)]
struct AccessState {
    settings: S3Settings,
    is_located: bool,
    key: Option<TemporaryKey>,
    current: Option<Arc<CurrentAccess>>,
}

/// Access with the present key.
#[derive(Debug)]
pub(super) struct CurrentAccess {
    pub(super) bucket: S3Bucket,
    pub(super) origin: HttpOrigin,
    transfer: TransferSettings,
    idle: Mutex<Vec<HttpClient>>,
}

impl BucketAccess {
    pub(super) fn new(
        bucket: &str,
        settings: S3Settings,
        security: &Arc<ConnectionSecurity>,
        timeout: Duration,
    ) -> Self {
        let mut transfer = TransferSettings {
            connect_timeout: timeout,
            ..TransferSettings::default()
        };
        transfer.options.stall = timeout;
        Self {
            name: bucket.to_owned(),
            security: Arc::clone(security),
            transfer,
            state: Mutex::new(AccessState {
                is_located: settings.endpoint.is_some(),
                settings,
                key: None,
                current: None,
            }),
        }
    }

    pub(super) fn settings(&self) -> S3Settings {
        self.state.lock().settings.clone()
    }

    /// Access with a key that lasts for a while. Gets a key if there is none, and once finds the region of the bucket. Those that
    /// need access at the same time wait for one of them.
    pub(super) fn current(&self) -> Result<Arc<CurrentAccess>, Failure> {
        let mut state = self.state.lock();
        if let Some(source) = &state.settings.key_source
            && !state.key.as_ref().is_some_and(TemporaryKey::is_fresh)
        {
            let key = source.key(&self.security)?;
            state.settings.credentials = Some(key.credentials.clone());
            state.key = Some(key);
            state.current = None;
        }
        if let Some(current) = &state.current {
            return Ok(Arc::clone(current));
        }
        let mut current = self.access_with(&state.settings);
        if !state.is_located {
            let action = Operation::on("find", format_args!("s3://{}", self.name));
            let mut client = current.client()?;
            let region = region_of(&mut client, &current.bucket, &action)?;
            if let Some(region) = region
                && region != state.settings.region
            {
                state.settings.region = region;
                current = self.access_with(&state.settings);
            }
            state.is_located = true;
        }
        let current = Arc::new(current);
        state.current = Some(Arc::clone(&current));
        Ok(current)
    }

    fn access_with(&self, settings: &S3Settings) -> CurrentAccess {
        let bucket = S3Bucket::new(&self.name, settings);
        CurrentAccess {
            origin: origin(&bucket, settings, &self.security),
            bucket,
            transfer: self.transfer.clone(),
            idle: Mutex::default(),
        }
    }

    /// Sends requests, and sends them again while the failure may pass by itself.
    pub(super) fn ask<T>(
        &self,
        work: impl Fn(&mut HttpClient, &CurrentAccess) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let mut attempt = 1;
        loop {
            let (result, wait) = self.send(&work);
            // A server that is silent was waited for long enough.
            let is_over = attempt == ATTEMPTS || begun.elapsed() >= self.transfer.connect_timeout;
            match result {
                Err(failure) if failure.may_retry() && !is_over => {
                    std::thread::sleep(pause(attempt, wait));
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// [`BucketAccess::send`] of a request that the server may answer late: a copy of a large object.
    pub(super) fn send_patiently<T>(
        &self,
        work: impl FnOnce(&mut HttpClient, &CurrentAccess) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut settings = self.transfer.clone();
        settings.options.stall = settings.options.stall.max(PATIENCE);
        let current = self.current()?;
        let mut client = HttpClient::new(&current.origin, &settings)?;
        work(&mut client, &current)
    }

    /// Sends requests once.
    pub(super) fn send<T>(
        &self,
        work: impl FnOnce(&mut HttpClient, &CurrentAccess) -> Result<T, Failure>,
    ) -> (Result<T, Failure>, Option<Duration>) {
        let sent = self.current().and_then(|current| {
            let mut client = current.client()?;
            let result = work(&mut client, &current);
            let wait = client.retry_after;
            current.keep([client]);
            Ok((result, wait))
        });
        match sent {
            Ok(sent) => sent,
            Err(failure) => (Err(failure), None),
        }
    }
}

/// The wait after a failed attempt; `asked`: what the server asks for.
pub(super) fn pause(attempt: u32, asked: Option<Duration>) -> Duration {
    let usual = FIRST_WAIT * 2u32.saturating_pow(attempt.saturating_sub(1));
    asked.unwrap_or(usual).min(MAX_WAIT)
}

impl CurrentAccess {
    /// The place of an object.
    pub(super) fn place(&self, path: &[u8]) -> Result<PlaceInBucket, Failure> {
        Ok(PlaceInBucket {
            key: match path {
                b"" => String::new(),
                path => self.bucket.key(path)?,
            },
            prefix: self.bucket.prefix(path)?,
            bucket: self.bucket.clone(),
        })
    }

    /// A connection for one request after the other.
    pub(super) fn client(&self) -> Result<HttpClient, Failure> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| HttpClient::new(&self.origin, &self.transfer), Ok)
    }

    /// Connections for several streams.
    pub(super) fn keep(&self, clients: impl IntoIterator<Item = HttpClient>) {
        let mut idle = self.idle.lock();
        idle.extend(clients);
        idle.truncate(MAX_IDLE);
    }
}
