//! Objects are stored: a small one by one request, others in parts over several connections. An object gets its name when all
//! of it is there and the server has compared its checksum.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::checksum::{ChecksumHasher, checksum_source, combine_checksums};
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::send::body::{self, BodyRange, BodyStream};
use data::store::Source;
use data::store::memory::MemorySource;
use ftp::failure::Operation;
use ftp::transfer::TransferSpec;
use ftp::transfer::outcome::pull_failure;
use ftp::{Failure, FailureKind};
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};
use proto::s3::documents::{self, CompletedPart, PartsPage, StoredPart};
use proto::s3::parts::{MAX_PARTS, PartPlan};

use super::bucket::S3Bucket;
use super::checksums::{base64_of_hex, hex_of_base64};
use super::dialect::error_failure;
use super::parts::{NextPart, PartSupply, read_up_to};
use super::record::{BegunUpload, UploadRecord};
use super::requests::{ask, call, not_understood};
use super::unfinished;
use crate::storage::http::client::HttpClient;
use crate::storage::http::request::{HttpRequest, HttpRequestBody};
use crate::storage::http::upload::{PutError, send_file};
use crate::storage::optional::{LeftPart, SharedUpload};

/// Bytes of a part of an object whose length is not known.
const STREAM_PART: u64 = 32 << 20;
/// Size from which a body waits for 100 Continue (RFC 9110 section 10.1.1), bytes.
const EXPECT_CONTINUE_FROM: u64 = 1 << 20;

const CONTENT_TYPE: (&str, &str) = ("content-type", "application/octet-stream");
const CHECKSUM: &str = "x-amz-checksum-crc32c";

/// The object that an upload makes.
#[derive(Debug, Clone)]
pub(super) struct UploadTarget {
    pub(super) bucket: S3Bucket,
    pub(super) key: String,
    pub(super) action: Operation,
    /// Headers of the request that makes the object: how it is encrypted.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) sends_checksums: bool,
    pub(super) record: UploadRecord,
}

impl UploadTarget {
    fn stored_parts(&self, client: &mut HttpClient, id: &str) -> Result<Vec<StoredPart>, Failure> {
        stored_parts(client, &self.bucket, &self.key, id, &self.action)
    }

    /// CreateMultipartUpload. `part`: bytes of each part but the last one.
    pub(super) fn begin(&self, client: &mut HttpClient, part: u64) -> Result<BegunUpload, Failure> {
        let mut headers = self.headers.clone();
        headers.push((CONTENT_TYPE.0, CONTENT_TYPE.1.to_owned()));
        headers.push(("content-length", "0".to_owned()));
        if self.sends_checksums {
            headers.push(("x-amz-checksum-algorithm", "CRC32C".to_owned()));
            headers.push(("x-amz-checksum-type", "FULL_OBJECT".to_owned()));
        }
        let url = self.bucket.object_url(&self.key, &[("uploads", "")]);
        let body = ask(
            client,
            "POST",
            &url,
            &headers,
            HttpRequestBody::Empty,
            &self.action,
        )?;
        let id = documents::upload_id(&body);
        let id = id.map_err(|error| not_understood(&self.action, error))?;
        Ok(BegunUpload {
            id,
            part,
            is_found: false,
        })
    }

    /// UploadPart. Returns the tag of the part.
    pub(super) fn put_part(
        &self,
        client: &mut HttpClient,
        upload: &str,
        part: &NextPart,
        bytes: &mut dyn Read,
    ) -> Result<String, Failure> {
        let number = part.number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", upload)];
        let url = self.bucket.object_url(&self.key, &query);
        let mut headers = vec![("content-length", part.range.len().to_string())];
        let sum = part.crc32c.as_deref().and_then(base64_of_hex);
        headers.extend(checksum_headers(sum));
        let body = HttpRequestBody::Bytes(bytes);
        let response = call(client, "PUT", &url, &headers, body, &self.action)?;
        let etag = response.header("etag").map(str::to_owned);
        response.discard_body();
        etag.ok_or_else(|| {
            let reason = "the server tells no tag of a part that it has stored";
            self.action.failed(FailureKind::Protocol, reason)
        })
    }

    /// CompleteMultipartUpload. The server compares the checksum of the object, and gives it its name. Returns its tag.
    pub(super) fn complete(
        &self,
        client: &mut HttpClient,
        upload: &BegunUpload,
        parts: &[CompletedPart],
        length: u64,
    ) -> Result<String, Failure> {
        let mut headers = vec![
            ("content-type", "application/xml".to_owned()),
            ("x-amz-mp-object-size", length.to_string()),
        ];
        if let Some(sum) = whole_checksum(parts, upload.part, length) {
            headers.push((CHECKSUM, sum));
            headers.push(("x-amz-checksum-type", "FULL_OBJECT".to_owned()));
        }
        let query = [("uploadId", upload.id.as_str())];
        let url = self.bucket.object_url(&self.key, &query);
        let text = documents::completion_request(parts);
        let body = ask(
            client,
            "POST",
            &url,
            &headers,
            HttpRequestBody::Text(&text),
            &self.action,
        )?;
        match documents::completion(&body) {
            Ok(Ok(etag)) => Ok(etag),
            Ok(Err(error)) => Err(error_failure(&self.action, &error, 200)),
            Err(error) => Err(not_understood(&self.action, error)),
        }
    }

    /// PutObject of bytes in memory. Returns the tag of the object, if the server tells one.
    pub(super) fn put_object(
        &self,
        client: &mut HttpClient,
        bytes: &[u8],
    ) -> Result<Option<String>, Failure> {
        let mut headers = self.headers.clone();
        headers.push((CONTENT_TYPE.0, CONTENT_TYPE.1.to_owned()));
        headers.push(("content-length", bytes.len().to_string()));
        if self.sends_checksums {
            let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
            hasher.update(bytes);
            headers.extend(checksum_headers(base64_of_hex(&hasher.finish())));
        }
        let url = self.bucket.object_url(&self.key, &[]);
        let mut body = bytes;
        let body = HttpRequestBody::Bytes(&mut body);
        let response = call(client, "PUT", &url, &headers, body, &self.action)?;
        let etag = response.header("etag").map(str::to_owned);
        response.discard_body();
        Ok(etag)
    }
}

/// Stores the bytes of `source`, or the part of it that `spec` names. Parts of an earlier attempt that are in
/// `spec.completed_ranges` are used.
pub(super) fn store(
    clients: &mut [HttpClient],
    target: &UploadTarget,
    source: &dyn Source,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, Failure> {
    let Some((first, _)) = clients.split_first_mut() else {
        return Err(Failure::local("no connection can be made"));
    };
    let job = UploadJob {
        target,
        source,
        spec,
        settings,
        control,
        offset: spec.part.map_or(0, |(offset, _)| offset),
    };
    let length = spec.size.or(spec.part.map(|(_, length)| length));
    let has_offsets = source.len().is_ok_and(|length| length.is_some());
    let Some(length) = length else {
        let read = read_up_to(source, job.offset, STREAM_PART, &mut || job.check());
        let beginning = read.map_err(|error| job.failure(PutError::Data(error)))?;
        if (beginning.len() as u64) < STREAM_PART {
            return job.put_bytes(first, beginning);
        }
        return job.put_parts(
            clients,
            PartOrder::Sequence(STREAM_PART, None, Some(beginning)),
        );
    };
    let streams = settings.streams as u64;
    let Some(plan) = PartPlan::for_object(length, streams) else {
        let reason = "no object has more than 5 TiB";
        return Err(target.action.failed(FailureKind::Usage, reason));
    };
    match (plan.count(), has_offsets) {
        (1, true) => job.put_whole(first, source, job.offset, length),
        (1, false) => {
            let read = read_up_to(source, job.offset, length, &mut || job.check());
            let bytes = read.map_err(|error| job.failure(PutError::Data(error)))?;
            if bytes.len() as u64 != length {
                let shrunk = DataError::Shrunk {
                    what: source.name(),
                    at: bytes.len() as u64,
                    expected: length,
                };
                return Err(job.failure(PutError::Data(shrunk)));
            }
            job.put_bytes(first, bytes)
        }
        (_, true) => job.put_parts(clients, PartOrder::Plan(plan, length)),
        (_, false) => {
            let order = PartOrder::Sequence(plan.part_size(), Some(length), None);
            job.put_parts(clients, order)
        }
    }
}

/// Finds or begins the upload of an object of `size` bytes, of which other processes store parts. `None`: it has one part, or
/// this machine cannot remember the upload.
pub(super) fn share(
    client: &mut HttpClient,
    target: &UploadTarget,
    size: u64,
    completed: &RangeSet,
) -> Result<Option<SharedUpload>, Failure> {
    let Some(plan) = PartPlan::for_object(size, 1).filter(|plan| plan.count() > 1) else {
        return Ok(None);
    };
    let upload = RunningUpload::find_or_begin(client, target, (size, plan), completed)?;
    if !upload.is_remembered {
        abort(client, target, &upload.begun.id)?;
        return Ok(None);
    }
    Ok(Some(SharedUpload {
        id: upload.begun.id,
        part: upload.begun.part,
    }))
}

/// Stores the parts of an object that are in `spec.part`, into an upload that another process completes.
pub(super) fn store_shared(
    (clients, upload): (&mut [HttpClient], &SharedUpload),
    target: &UploadTarget,
    source: &dyn Source,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, Failure> {
    let unfit = || {
        let reason = "the part of it that was ordered is none of its upload";
        target.action.failed(FailureKind::Protocol, reason)
    };
    let (size, (offset, length)) = spec.size.zip(spec.part).ok_or_else(unfit)?;
    let plan = PartPlan::with_part(size, upload.part).ok_or_else(unfit)?;
    let end = offset.saturating_add(length);
    let parts: Vec<_> = (1..=plan.count())
        .filter_map(|number| Some((number, plan.range(number)?)))
        .filter(|(_, range)| range.start >= offset && range.end <= end)
        .collect();
    if parts.iter().map(|(_, range)| range.len()).sum::<u64>() != length {
        return Err(unfit());
    }
    let job = UploadJob {
        target,
        source,
        spec,
        settings,
        control,
        offset: 0,
    };
    let supply = PartSupply::of_ranges(source, 0, target.sends_checksums, parts);
    let sent = SentParts {
        parts: Mutex::default(),
        length: None,
        stored: &spec.stored_ranges,
    };
    job.send_parts(clients, (&supply, Some(length)), &upload.id, &sent)
}

/// The order in which parts are sent.
enum PartOrder {
    /// In any order, for an object of this length.
    Plan(PartPlan, u64),
    /// One after the other: bytes of a part, length of the object if known, and the first part if it was read already.
    Sequence(u64, Option<u64>, Option<Vec<u8>>),
}

struct UploadJob<'j> {
    target: &'j UploadTarget,
    source: &'j dyn Source,
    spec: &'j TransferSpec,
    settings: &'j TransferSettings,
    control: &'j Arc<TransferControl>,
    /// Offset of the object's first byte in the source.
    offset: u64,
}

/// An upload while it runs.
struct RunningUpload {
    begun: BegunUpload,
    /// Parts that an earlier attempt has stored.
    stored: Vec<StoredPart>,
    /// A later run can go on with it.
    is_remembered: bool,
}

impl RunningUpload {
    /// The upload of an earlier attempt, with the parts that are in `completed`, or a new one. One that is of no use is aborted.
    fn find_or_begin(
        client: &mut HttpClient,
        target: &UploadTarget,
        (length, plan): (u64, PartPlan),
        completed: &RangeSet,
    ) -> Result<Self, Failure> {
        let Some(begun) = target.record.load() else {
            return Self::begin(client, target, plan.part_size());
        };
        let earlier = PartPlan::with_part(length, begun.part).filter(|_| !completed.is_empty());
        let Some(earlier) = earlier else {
            abandon(client, target)?;
            return Self::begin(client, target, plan.part_size());
        };
        let stored = match target.stored_parts(client, &begun.id) {
            Err(missing) if missing.is_missing() => {
                target.record.forget();
                return Self::begin(client, target, plan.part_size());
            }
            stored => stored?,
        };
        let counts = |part: &StoredPart| {
            earlier.range(part.number).is_some_and(|range| {
                range.len() == part.size && completed.contains(range.start, range.end)
            })
        };
        Ok(Self {
            stored: stored.into_iter().filter(counts).collect(),
            begun,
            is_remembered: true,
        })
    }

    /// CreateMultipartUpload.
    fn begin(client: &mut HttpClient, target: &UploadTarget, part: u64) -> Result<Self, Failure> {
        let begun = target.begin(client, part)?;
        let is_remembered = target.record.save(&begun);
        Ok(Self {
            begun,
            stored: Vec::new(),
            is_remembered,
        })
    }
}

impl UploadJob<'_> {
    fn check(&self) -> Result<(), DataError> {
        match self.control.is_cancelled() {
            true => Err(DataError::Aborted),
            false => Ok(()),
        }
    }

    fn failure(&self, error: PutError) -> Failure {
        match error {
            PutError::Refused(failure) => failure,
            PutError::Data(error) => {
                let server = self.target.bucket.server.authority();
                pull_failure(
                    &server,
                    &self.target.action,
                    &error,
                    &self.spec.confirmation,
                )
            }
        }
    }

    fn put_bytes(
        &self,
        client: &mut HttpClient,
        bytes: Vec<u8>,
    ) -> Result<TransferReport, Failure> {
        let length = bytes.len() as u64;
        let source = MemorySource::new(bytes, self.source.name());
        self.put_whole(client, &source, 0, length)
    }

    /// PutObject.
    fn put_whole(
        &self,
        client: &mut HttpClient,
        source: &dyn Source,
        offset: u64,
        length: u64,
    ) -> Result<TransferReport, Failure> {
        // One that an earlier run has begun with other bytes.
        self.abandon_earlier(client)?;
        let target = self.target;
        let mut headers = target.headers.clone();
        headers.push((CONTENT_TYPE.0, CONTENT_TYPE.1.to_owned()));
        headers.push(("content-length", length.to_string()));
        if length >= EXPECT_CONTINUE_FROM {
            headers.push(("expect", "100-continue".to_owned()));
        }
        if target.sends_checksums {
            let sum = checksum_source(
                ChecksumAlgorithm::Crc32c,
                source,
                offset,
                Some(length),
                &mut |_| self.check().is_ok(),
            );
            let sum = sum.map_err(|error| self.failure(PutError::Data(error)))?;
            headers.extend(checksum_headers(base64_of_hex(&sum)));
        }
        let url = target.bucket.object_url(&target.key, &[]);
        let request = HttpRequest {
            method: "PUT",
            url: &url,
            headers: &headers,
            action: &target.action,
        };
        let range = BodyRange {
            offset,
            length: Some(length),
        };
        let (spec, settings, control) = (self.spec, self.settings, self.control);
        send_file(client, &request, source, range, spec, settings, control)
            .map_err(|(_, error)| self.failure(error))
    }

    /// An upload in parts.
    fn put_parts(
        &self,
        clients: &mut [HttpClient],
        order: PartOrder,
    ) -> Result<TransferReport, Failure> {
        let Some((first, _)) = clients.split_first_mut() else {
            return Err(Failure::local("no connection can be made"));
        };
        self.check()
            .map_err(|error| self.failure(PutError::Data(error)))?;
        let completed = &self.spec.completed_ranges;
        let upload = match &order {
            PartOrder::Plan(plan, length) => {
                RunningUpload::find_or_begin(first, self.target, (*length, *plan), completed)?
            }
            PartOrder::Sequence(part, ..) => {
                self.abandon_earlier(first)?;
                RunningUpload::begin(first, self.target, *part)?
            }
        };
        let sent = self.send_missing(clients, order, &upload);
        let Some((first, _)) = clients.split_first_mut() else {
            return Err(Failure::local("no connection can be made"));
        };
        let completed = sent.and_then(|(report, parts, length)| {
            self.complete(first, &upload, &parts, length)
                .map(|()| report)
        });
        match completed {
            Ok(report) => {
                self.target.record.forget();
                Ok(report)
            }
            Err(failure) if upload.is_remembered => {
                Err(give_up(first, self.target, &upload.begun.id, failure))
            }
            Err(failure) => Err(discard(first, self.target, &upload.begun.id, failure)),
        }
    }

    /// Aborts the upload of an earlier attempt, if there is one.
    fn abandon_earlier(&self, client: &mut HttpClient) -> Result<(), Failure> {
        abandon(client, self.target)
    }

    /// Sends the missing parts. Returns all parts, and the length of the object.
    fn send_missing(
        &self,
        clients: &mut [HttpClient],
        order: PartOrder,
        upload: &RunningUpload,
    ) -> Result<(TransferReport, Vec<CompletedPart>, u64), Failure> {
        let sums = self.target.sends_checksums;
        let (source, offset) = (self.source, self.offset);
        let (supply, bytes, length) = match order {
            PartOrder::Plan(_, length) => {
                // An earlier upload has parts of its own size.
                let plan = PartPlan::with_part(length, upload.begun.part);
                let plan = plan.ok_or_else(|| Failure::local("the parts do not fit the object"))?;
                let is_missing =
                    |number: &u32| !upload.stored.iter().any(|part| part.number == *number);
                let missing: Vec<_> = (1..=plan.count())
                    .filter(is_missing)
                    .filter_map(|number| Some((number, plan.range(number)?)))
                    .collect();
                let bytes = missing.iter().map(|(_, range)| range.len()).sum();
                let supply = PartSupply::of_ranges(source, offset, sums, missing);
                (supply, Some(bytes), Some(length))
            }
            PartOrder::Sequence(part, length, first) => {
                let supply = PartSupply::of_sequence(source, offset, sums, part, length, first);
                (supply, length, length)
            }
        };
        let sent = SentParts {
            parts: Mutex::new(upload.stored.iter().map(completed_of).collect()),
            length,
            stored: &self.spec.stored_ranges,
        };
        let report = self.send_parts(clients, (&supply, bytes), &upload.begun.id, &sent)?;
        let mut parts = sent.parts.into_inner();
        parts.sort_unstable_by_key(|(part, _)| part.number);
        let total = parts.iter().map(|(_, length)| length).sum();
        let parts = parts.into_iter().map(|(part, _)| part).collect();
        Ok((report, parts, length.unwrap_or(total)))
    }

    /// Sends the parts of a supply, which has so many bytes.
    fn send_parts(
        &self,
        clients: &mut [HttpClient],
        (supply, bytes): (&PartSupply<'_>, Option<u64>),
        upload: &str,
        sent: &SentParts<'_>,
    ) -> Result<TransferReport, Failure> {
        let work = |client: &mut HttpClient, stream: &mut BodyStream<'_>| {
            while let Some(part) = supply.next(stream)? {
                stream.check()?;
                self.send_part(client, stream, supply, &part, upload, sent)?;
            }
            Ok::<_, PutError>(())
        };
        let streams = clients
            .iter_mut()
            .take(self.settings.streams.max(1))
            .map(|client| (Arc::clone(&client.dialer), client))
            .collect();
        self.spec.started.store(true, Ordering::Relaxed);
        body::run_parts(streams, bytes, self.settings, self.control, work)
            .map_err(|error| self.failure(error))
    }

    /// UploadPart.
    fn send_part(
        &self,
        client: &mut HttpClient,
        stream: &mut BodyStream<'_>,
        supply: &PartSupply<'_>,
        part: &NextPart,
        upload: &str,
        sent: &SentParts<'_>,
    ) -> Result<(), PutError> {
        if u64::from(part.number) > MAX_PARTS {
            let reason =
                "it has more than the 10 000 parts that an object can have; copy it from a file";
            let failure = self.target.action.failed(FailureKind::Usage, reason);
            return Err(PutError::Refused(failure));
        }
        let (source, offset) = supply.bytes(part);
        let extent = BodyRange {
            offset,
            length: Some(part.range.len()),
        };
        let etag = &mut None;
        stream.send(source, extent, part.range.start, |bytes| {
            let sent = self.target.put_part(client, upload, part, bytes);
            *etag = Some(sent.map_err(PutError::Refused)?);
            Ok::<_, PutError>(())
        })?;
        let etag = etag.take().unwrap_or_default();
        sent.add(part.completed(etag), part.range);
        Ok(())
    }

    /// CompleteMultipartUpload. The server compares the checksum of the object, and gives it its name.
    fn complete(
        &self,
        client: &mut HttpClient,
        upload: &RunningUpload,
        parts: &[CompletedPart],
        length: u64,
    ) -> Result<(), Failure> {
        self.check()
            .map_err(|error| self.failure(PutError::Data(error)))?;
        self.target
            .complete(client, &upload.begun, parts, length)
            .map(drop)
    }
}

/// The parts that the server has.
struct SentParts<'s> {
    /// Each with its length.
    parts: Mutex<Vec<(CompletedPart, u64)>>,
    /// Length of the object, if known.
    length: Option<u64>,
    /// Reported to whoever began the attempt.
    stored: &'s Mutex<RangeSet>,
}

impl SentParts<'_> {
    fn add(&self, part: CompletedPart, range: ByteRange) {
        let mut parts = self.parts.lock();
        parts.push((part, range.len()));
        let all: u64 = parts.iter().map(|(_, length)| length).sum();
        // All of the bytes are not the object: its upload must be completed, by the attempt that stores the last of them.
        if self.length.is_some_and(|length| all < length) {
            self.stored.lock().insert(range.start, range.end);
        }
    }
}

/// The headers for a checksum, with its algorithm, which some servers look for first.
fn checksum_headers(sum: Option<String>) -> impl Iterator<Item = (&'static str, String)> {
    let named = |sum| {
        [
            (CHECKSUM, sum),
            ("x-amz-sdk-checksum-algorithm", "CRC32C".to_owned()),
        ]
    };
    sum.into_iter().flat_map(named)
}

fn completed_of(part: &StoredPart) -> (CompletedPart, u64) {
    let completed = CompletedPart {
        number: part.number,
        etag: part.etag.clone(),
        crc32c: part.crc32c.clone(),
    };
    (completed, part.size)
}

/// The checksum of an object of parts; `None` if one of them has none.
fn whole_checksum(parts: &[CompletedPart], part: u64, length: u64) -> Option<String> {
    let mut left = length;
    let mut sums = Vec::with_capacity(parts.len());
    for completed in parts {
        let bytes = part.min(left);
        left -= bytes;
        sums.push((hex_of_base64(completed.crc32c.as_deref()?)?, bytes));
    }
    let sums = sums.iter().map(|(sum, bytes)| (sum.as_str(), *bytes));
    base64_of_hex(&combine_checksums(ChecksumAlgorithm::Crc32c, sums)?)
}

/// The words for an upload that could not be removed.
fn left_behind(id: &str) -> String {
    format!(
        "parts of it are left at the server and cost storage: remove them with `aws s3api abort-multipart-upload \
         --upload-id {id}`"
    )
}

fn abort(client: &mut HttpClient, target: &UploadTarget, id: &str) -> Result<(), Failure> {
    unfinished::abort(client, &target.bucket, &target.key, id, &target.action)
}

/// After a failure of an upload that this machine remembers: a later attempt goes on with it if that can succeed; otherwise nothing
/// of it stays.
pub(super) fn give_up(
    client: &mut HttpClient,
    target: &UploadTarget,
    id: &str,
    failure: Failure,
) -> Failure {
    match failure.may_retry() || failure.kind() == FailureKind::Interrupted {
        true => failure.remark(
            "the parts that have arrived are kept at the server: the same command goes on with them",
        ),
        false => discard(client, target, id, failure),
    }
}

/// After a failure: nothing of an upload stays, and if some does, the failure says so.
fn discard(client: &mut HttpClient, target: &UploadTarget, id: &str, failure: Failure) -> Failure {
    target.record.forget();
    // A cancelled transfer's connection has been stopped.
    match abort(client, target, id) {
        Ok(()) => failure,
        Err(_) => failure.remark(left_behind(id)),
    }
}

/// Aborts the upload that this machine remembers of an object, if there is one.
pub(super) fn abandon(client: &mut HttpClient, target: &UploadTarget) -> Result<(), Failure> {
    let Some(begun) = target.record.load() else {
        return Ok(());
    };
    // One that this machine has not begun is somebody else's.
    if !begun.is_found {
        abort(client, target, &begun.id)?;
    }
    target.record.forget();
    Ok(())
}

/// ListParts.
pub(super) fn stored_parts(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    key: &str,
    id: &str,
    action: &Operation,
) -> Result<Vec<StoredPart>, Failure> {
    let (mut parts, mut after) = (Vec::new(), None);
    loop {
        let marker = after.map(|number: u32| number.to_string());
        let mut query = vec![("uploadId", id)];
        query.extend(
            marker
                .as_deref()
                .map(|number| ("part-number-marker", number)),
        );
        let url = bucket.object_url(key, &query);
        let body = ask(client, "GET", &url, &[], HttpRequestBody::Empty, action)?;
        let page = PartsPage::parse(&body).map_err(|error| not_understood(action, error))?;
        parts.extend(page.parts);
        match page.next {
            Some(next)
                if after.is_none_or(|before| next > before) && parts.len() as u64 <= MAX_PARTS =>
            {
                after = Some(next);
            }
            Some(_) => {
                let reason = "the server lists the same parts of it again";
                return Err(action.failed(FailureKind::Protocol, reason));
            }
            None => return Ok(parts),
        }
    }
}

/// The parts that an earlier attempt has left of an object of `length` bytes, each with a checksum. Never all of them: the
/// attempt that stores the last one completes the upload.
pub(super) fn left_parts(
    client: &mut HttpClient,
    target: &UploadTarget,
    length: u64,
) -> Result<Vec<LeftPart>, Failure> {
    let Some(begun) = target.record.load() else {
        return Ok(Vec::new());
    };
    let Some(plan) = PartPlan::with_part(length, begun.part) else {
        return Ok(Vec::new());
    };
    let stored = match target.stored_parts(client, &begun.id) {
        Err(missing) if missing.is_missing() => {
            target.record.forget();
            return Ok(Vec::new());
        }
        stored => stored?,
    };
    let left = stored.iter().filter_map(|part| {
        let range = plan
            .range(part.number)
            .filter(|range| range.len() == part.size)?;
        let (algorithm, checksum) = checksum_of(part)?;
        Some(LeftPart {
            range,
            algorithm,
            checksum,
        })
    });
    let most = plan.count().saturating_sub(1) as usize;
    Ok(left.take(most).collect())
}

/// A checksum of a stored part: its tag is the MD5 where the server has nothing better, unless it encrypts it with a key of the
/// user's; then it is of no use, and the part is sent again.
fn checksum_of(part: &StoredPart) -> Option<(ChecksumAlgorithm, String)> {
    let crc32c = part.crc32c.as_deref().and_then(hex_of_base64);
    if let Some(sum) = crc32c {
        return Some((ChecksumAlgorithm::Crc32c, sum));
    }
    let md5 = ChecksumAlgorithm::Md5.parse_hex(part.etag.trim_matches('"'))?;
    Some((ChecksumAlgorithm::Md5, md5))
}
