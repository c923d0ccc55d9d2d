//! A test server with one bucket, which checks conditions and checksums as Amazon does. Signatures must be there; whether they
//! are right is tested with other programs (tests/interop).

use std::collections::BTreeMap;
use std::sync::Arc;

use data::checksum::ChecksumHasher;
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::percent_decode_str;
use proto::checksum::ChecksumAlgorithm;
use proto::s3::keys;

use super::checksums::base64_of_hex;
use super::settings::S3Settings;
use crate::storage::http::scripted::{
    ReceivedRequest, ScriptedHttpServer, file_response, head_response, response,
};
use rusty_s3::Credentials;

pub(crate) const BUCKET: &str = "bucket";
/// Most entries of a page, so that every listing has several.
const PAGE: usize = 2;

/// An object, or a part of one.
#[derive(Debug, Clone, Default)]
struct HeldObject {
    bytes: Vec<u8>,
    etag: String,
    /// Whether it was sent with a checksum.
    has_checksum: bool,
    class: Option<String>,
    is_restored: bool,
    /// Bytes of its parts.
    parts: Vec<usize>,
}

#[derive(Debug, Default)]
struct HeldUpload {
    key: String,
    parts: BTreeMap<u32, HeldObject>,
}

#[derive(Debug, Default)]
struct BucketState {
    objects: BTreeMap<String, HeldObject>,
    uploads: BTreeMap<String, HeldUpload>,
    begun: usize,
    /// Parts that are still accepted; then the server is busy.
    accepted: Option<usize>,
    /// When uploads begin and their parts arrive; `None`: now.
    time: Option<jiff::Timestamp>,
    /// The next body loses its last byte's value on the way.
    damages: bool,
    refuses: Option<&'static str>,
    /// Attributes are not implemented.
    hides_parts: bool,
}

pub(crate) struct BucketServer {
    pub(super) server: ScriptedHttpServer,
    state: Arc<Mutex<BucketState>>,
}

impl BucketServer {
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<BucketState>>::default();
        let held = Arc::clone(&state);
        let server = ScriptedHttpServer::start(move |request| answer(&mut held.lock(), request));
        Self { server, state }
    }

    pub(crate) fn settings(&self) -> S3Settings {
        S3Settings {
            endpoint: Some(self.server.url("/").parse().unwrap()),
            region: "us-east-1".to_owned(),
            credentials: Some(Credentials::new("key", "hush")),
            key_source: None,
            path_style: None,
            requester_pays: false,
            sends_checksums: true,
            encryption: None,
            customer_key: None,
        }
    }

    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let object = held(bytes.to_vec(), false);
        self.state().objects.insert(key.to_owned(), object);
    }

    /// An object of parts, with a SHA-256 of these. `tells`: the server says how long they are.
    pub(crate) fn put_parts(&self, key: &str, parts: &[&[u8]], tells: bool) {
        let mut object = held(parts.concat(), true);
        object.parts = parts.iter().map(|part| part.len()).collect();
        self.state().objects.insert(key.to_owned(), object);
        self.state().hides_parts = !tells;
    }

    /// An object of parts that has no checksum but its tag.
    pub(crate) fn put_tagged_parts(&self, key: &str, parts: &[&[u8]]) {
        let mut object = held(parts.concat(), false);
        object.parts = parts.iter().map(|part| part.len()).collect();
        let sum = sum_of_parts(&object, ChecksumAlgorithm::Md5);
        object.etag = format!("\"{sum}-{}\"", parts.len());
        self.state().objects.insert(key.to_owned(), object);
        self.state().hides_parts = true;
    }

    pub(super) fn archive(&self, key: &str) {
        if let Some(object) = self.state().objects.get_mut(key) {
            object.class = Some("GLACIER".to_owned());
        }
    }

    pub(super) fn restore(&self, key: &str) {
        if let Some(object) = self.state().objects.get_mut(key) {
            object.is_restored = true;
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.objects.get(key).map(|object| object.bytes.clone())
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    pub(super) fn upload_count(&self) -> usize {
        self.state().uploads.len()
    }

    pub(super) fn accept_parts(&self, count: Option<usize>) {
        self.state().accepted = count;
    }

    /// All uploads were left this long ago.
    pub(super) fn age_uploads(&self, age: std::time::Duration) {
        self.state().time = jiff::Timestamp::now().checked_sub(age).ok();
    }

    pub(super) fn damage_next_body(&self) {
        self.state().damages = true;
    }

    /// Refuses every request with this code.
    pub(super) fn refuse(&self, code: &'static str) {
        self.state().refuses = Some(code);
    }

    /// Answers requests again.
    pub(super) fn refuse_nothing(&self) {
        self.state().refuses = None;
    }

    fn state(&self) -> MutexGuard<'_, BucketState> {
        self.state.lock()
    }
}

fn sum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut hasher = ChecksumHasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

fn crc32c(bytes: &[u8]) -> String {
    base64_of_hex(&sum(ChecksumAlgorithm::Crc32c, bytes)).unwrap()
}

fn held(bytes: Vec<u8>, has_checksum: bool) -> HeldObject {
    HeldObject {
        etag: format!("\"{}\"", sum(ChecksumAlgorithm::Md5, &bytes)),
        bytes,
        has_checksum,
        class: None,
        is_restored: false,
        parts: Vec::new(),
    }
}

fn error(status: &str, code: &str) -> Vec<u8> {
    let body = format!("<Error><Code>{code}</Code><Message>It is so.</Message></Error>");
    response(status, &[], body.as_bytes())
}

fn document(text: &str) -> Vec<u8> {
    let text = format!("<?xml version=\"1.0\"?>{text}");
    response("200 OK", &[], text.as_bytes())
}

/// A request, decoded.
struct BucketRequest<'r> {
    received: &'r ReceivedRequest,
    /// Empty: it is about the bucket.
    key: String,
    query: BTreeMap<String, String>,
}

impl BucketRequest<'_> {
    fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }
}

fn answer(state: &mut BucketState, received: &ReceivedRequest) -> Vec<u8> {
    let (path, query) = received
        .path
        .split_once('?')
        .unwrap_or((&received.path, ""));
    let decode = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let path = decode(path);
    let query: BTreeMap<_, _> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect();
    let key = path.strip_prefix(&format!("/{BUCKET}"));
    let key = key.map(|key| key.strip_prefix('/').unwrap_or(key).to_owned());
    let Some(key) = key else {
        return refusal(received, "404 Not Found", "NoSuchBucket");
    };
    if !query.contains_key("X-Amz-Signature") {
        return refusal(received, "403 Forbidden", "AccessDenied");
    }
    if let Some(code) = state.refuses {
        return refusal(received, "503 Slow Down", code);
    }
    let request = BucketRequest {
        received,
        key,
        query,
    };
    match received.method.as_str() {
        "GET" if request.query("list-type").is_some() => list(state, &request),
        "GET" if request.query("uploads").is_some() => list_uploads(state, &request),
        "GET" if request.query("uploadId").is_some() => list_parts(state, &request),
        "GET" if request.query("attributes").is_some() => attributes(state, &request),
        "GET" | "HEAD" => read(state, &request),
        "PUT" if request.query("uploadId").is_some() => put_part(state, &request),
        "PUT" => put(state, &request),
        "POST" if request.query("delete").is_some() => remove_many(state, &request),
        "POST" if request.query("uploads").is_some() => begin_upload(state, &request),
        "POST" => complete(state, &request),
        "DELETE" => {
            match request.query("uploadId") {
                Some(id) => state.uploads.remove(id).map(|_| ()),
                None => state.objects.remove(&request.key).map(|_| ()),
            };
            response("204 No Content", &[], b"")
        }
        _ => error("405 Method Not Allowed", "MethodNotAllowed"),
    }
}

/// An error; the answer to HEAD has no body.
fn refusal(received: &ReceivedRequest, status: &str, code: &str) -> Vec<u8> {
    match received.method.as_str() {
        "HEAD" => head_response(status, &[], 0),
        _ => error(status, code),
    }
}

fn read(state: &BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let received = request.received;
    if request.key.is_empty() {
        return response("200 OK", &[], b"");
    }
    let Some(object) = state.objects.get(&request.key) else {
        return refusal(received, "404 Not Found", "NoSuchKey");
    };
    if received
        .header("if-match")
        .is_some_and(|tag| tag != object.etag)
    {
        return refusal(received, "412 Precondition Failed", "PreconditionFailed");
    }
    if received.method == "GET" && object.class.is_some() && !object.is_restored {
        return refusal(received, "403 Forbidden", "InvalidObjectState");
    }
    if let Some(number) = request.query("partNumber") {
        let number: usize = number.parse().unwrap();
        return head_response("206 Partial Content", &[], object.parts[number - 1]);
    }
    let sum = crc32c(&object.bytes);
    let composite = composite(object);
    let mut fields = vec![("ETag", object.etag.as_str())];
    let asks = received.header("x-amz-checksum-mode") == Some("ENABLED");
    if !object.parts.is_empty() && object.has_checksum && asks {
        fields.push(("x-amz-checksum-sha256", &composite));
        fields.push(("x-amz-checksum-type", "COMPOSITE"));
    } else if object.has_checksum && asks {
        fields.push(("x-amz-checksum-crc32c", &sum));
        fields.push(("x-amz-checksum-type", "FULL_OBJECT"));
    }
    if let Some(class) = &object.class {
        fields.push(("x-amz-storage-class", class));
    }
    if object.is_restored {
        fields.push(("x-amz-restore", "ongoing-request=\"false\""));
    }
    file_response(received, &object.bytes, &fields)
}

/// The SHA-256 of the SHA-256s of the parts.
fn composite(object: &HeldObject) -> String {
    let sum = sum_of_parts(object, ChecksumAlgorithm::Sha256);
    format!("{}-{}", base64_of_hex(&sum).unwrap(), object.parts.len())
}

fn sum_of_parts(object: &HeldObject, algorithm: ChecksumAlgorithm) -> String {
    let (mut sums, mut at) = (Vec::new(), 0);
    for length in &object.parts {
        let part = sum(algorithm, &object.bytes[at..at + length]);
        sums.extend(proto::checksum::bytes_of_hex(&part).unwrap());
        at += length;
    }
    sum(algorithm, &sums)
}

fn attributes(state: &BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    if state.hides_parts {
        return error("501 Not Implemented", "NotImplemented");
    }
    let after = request.received.header("x-amz-part-number-marker");
    let after = after.map_or(0, |text| text.parse::<usize>().unwrap());
    let parts = &state.objects[&request.key].parts;
    let mut text = "<GetObjectAttributesResponse><ObjectParts>".to_owned();
    for (at, length) in parts.iter().enumerate().skip(after).take(PAGE) {
        let number = at + 1;
        text += &format!("<Part><PartNumber>{number}</PartNumber><Size>{length}</Size></Part>");
    }
    let next = after + PAGE;
    text += &format!(
        "<IsTruncated>{}</IsTruncated><NextPartNumberMarker>{next}</NextPartNumberMarker>",
        next < parts.len()
    );
    document(&(text + "</ObjectParts></GetObjectAttributesResponse>"))
}

/// The body of a request, unless it is not the one that was sent.
fn body(state: &mut BucketState, received: &ReceivedRequest) -> Result<HeldObject, Vec<u8>> {
    let mut bytes = received.body.clone();
    if std::mem::take(&mut state.damages)
        && let Some(last) = bytes.last_mut()
    {
        *last ^= 1;
    }
    let sent = received.header("x-amz-checksum-crc32c");
    match sent {
        Some(sent) if sent != crc32c(&bytes) => Err(error("400 Bad Request", "BadDigest")),
        _ => Ok(held(bytes, sent.is_some())),
    }
}

fn put(state: &mut BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    if let Some(source) = request.received.header("x-amz-copy-source") {
        let source = percent_decode_str(source).decode_utf8().unwrap();
        let source = source.strip_prefix(&format!("{BUCKET}/")).unwrap();
        let Some(object) = state.objects.get(source).cloned() else {
            return error("404 Not Found", "NoSuchKey");
        };
        let text = format!(
            "<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>",
            object.etag
        );
        state.objects.insert(request.key.clone(), object);
        return document(&text);
    }
    match body(state, request.received) {
        Err(refused) => refused,
        Ok(object) => {
            let etag = object.etag.clone();
            state.objects.insert(request.key.clone(), object);
            response("200 OK", &[("ETag", &etag)], b"")
        }
    }
}

fn begin_upload(state: &mut BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    state.begun += 1;
    let id = format!("upload+/{}", state.begun);
    let upload = HeldUpload {
        key: request.key.clone(),
        ..HeldUpload::default()
    };
    state.uploads.insert(id.clone(), upload);
    document(&format!(
        "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
    ))
}

fn put_part(state: &mut BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let number = request.query("partNumber").unwrap().parse().unwrap();
    // A part that comes again, after a connection was lost, is no further one.
    let is_there = |upload: &HeldUpload| upload.parts.contains_key(&number);
    if !request
        .query("uploadId")
        .and_then(|id| state.uploads.get(id))
        .is_some_and(is_there)
    {
        match &mut state.accepted {
            Some(0) => return error("503 Slow Down", "SlowDown"),
            Some(left) => *left -= 1,
            None => {}
        }
    }
    let part = match body(state, request.received) {
        Err(refused) => return refused,
        Ok(part) => part,
    };
    let upload = request
        .query("uploadId")
        .and_then(|id| state.uploads.get_mut(id));
    let Some(upload) = upload.filter(|upload| upload.key == request.key) else {
        return error("404 Not Found", "NoSuchUpload");
    };
    let etag = part.etag.clone();
    upload.parts.insert(number, part);
    response("200 OK", &[("ETag", &etag)], b"")
}

fn list_parts(state: &BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let Some(upload) = request
        .query("uploadId")
        .and_then(|id| state.uploads.get(id))
    else {
        return error("404 Not Found", "NoSuchUpload");
    };
    let after = request
        .query("part-number-marker")
        .map_or(0, |text| text.parse().unwrap());
    let mut rest = upload.parts.range(after + 1..);
    let mut text = "<ListPartsResult>".to_owned();
    let mut last = 0;
    for (number, part) in rest.by_ref().take(PAGE) {
        text += &format!(
            "<Part><PartNumber>{number}</PartNumber><Size>{}</Size><ETag>{}</ETag>\
             <ChecksumCRC32C>{}</ChecksumCRC32C><LastModified>{}</LastModified></Part>",
            part.bytes.len(),
            part.etag,
            crc32c(&part.bytes),
            time_of_uploads(state)
        );
        last = *number;
    }
    let is_truncated = rest.next().is_some();
    text += &format!(
        "<IsTruncated>{is_truncated}</IsTruncated><NextPartNumberMarker>{last}</NextPartNumberMarker></ListPartsResult>"
    );
    document(&text)
}

fn time_of_uploads(state: &BucketState) -> String {
    let time = state.time.unwrap_or_else(jiff::Timestamp::now);
    time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

fn list_uploads(state: &BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let prefix = request.query("prefix").unwrap_or_default();
    let after = [
        request.query("key-marker"),
        request.query("upload-id-marker"),
    ];
    let after = after.map(Option::unwrap_or_default);
    let mut uploads: Vec<_> = state
        .uploads
        .iter()
        .map(|(id, upload)| [upload.key.as_str(), id])
        .filter(|[key, id]| key.starts_with(prefix) && [*key, *id] > after)
        .collect();
    uploads.sort_unstable();
    let mut text = "<ListMultipartUploadsResult>".to_owned();
    for [key, id] in uploads.iter().take(PAGE) {
        text += &format!(
            "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{}</Initiated></Upload>",
            time_of_uploads(state)
        );
    }
    text += &match uploads.get(PAGE) {
        None => "<IsTruncated>false</IsTruncated>".to_owned(),
        Some(_) => {
            let [key, id] = uploads[PAGE - 1];
            format!(
                "<IsTruncated>true</IsTruncated><NextKeyMarker>{key}</NextKeyMarker>\
                 <NextUploadIdMarker>{id}</NextUploadIdMarker>"
            )
        }
    };
    document(&(text + "</ListMultipartUploadsResult>"))
}

fn complete(state: &mut BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let id = request.query("uploadId").unwrap_or_default().to_owned();
    let Some(upload) = state.uploads.get(&id) else {
        return error("404 Not Found", "NoSuchUpload");
    };
    let text = String::from_utf8(request.received.body.clone()).unwrap();
    let mut bytes = Vec::new();
    for (number, part) in &upload.parts {
        let named = format!(
            "<PartNumber>{number}</PartNumber><ETag>{}</ETag>",
            part.etag.replace('"', "&quot;")
        );
        if !text.contains(&named) {
            return error("400 Bad Request", "InvalidPart");
        }
        bytes.extend_from_slice(&part.bytes);
    }
    let sent = request.received.header("x-amz-checksum-crc32c");
    if sent.is_some_and(|sent| sent != crc32c(&bytes)) {
        return document("<Error><Code>BadDigest</Code></Error>");
    }
    let mut object = held(bytes, sent.is_some());
    object.etag = format!(
        "{}-{}\"",
        object.etag.trim_end_matches('"'),
        upload.parts.len()
    );
    let etag = object.etag.clone();
    state.objects.insert(request.key.clone(), object);
    state.uploads.remove(&id);
    document(&format!(
        "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
    ))
}

fn remove_many(state: &mut BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let text = String::from_utf8(request.received.body.clone()).unwrap();
    let sum = sum(ChecksumAlgorithm::Md5, text.as_bytes());
    if request.received.header("content-md5") != base64_of_hex(&sum).as_deref() {
        return error("400 Bad Request", "BadDigest");
    }
    for part in text.split("<Key>").skip(1) {
        let key = part.split("</Key>").next().unwrap_or_default();
        state.objects.remove(&key.replace("&amp;", "&"));
    }
    document("<DeleteResult/>")
}

fn list(state: &BucketState, request: &BucketRequest<'_>) -> Vec<u8> {
    let prefix = request.query("prefix").unwrap_or_default();
    let is_grouped = request.query("delimiter") == Some("/");
    let most = request
        .query("max-keys")
        .map_or(PAGE, |text| text.parse().unwrap());
    let after = request.query("continuation-token").unwrap_or_default();
    let mut entries = BTreeMap::new();
    for (key, object) in state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(prefix))
    {
        let end = key[prefix.len()..].find('/').filter(|_| is_grouped);
        match end {
            Some(end) => entries.insert(key[..prefix.len() + end + 1].to_owned(), None),
            None => entries.insert(key.clone(), Some(object)),
        };
    }
    let mut rest = entries.iter().filter(|(key, _)| key.as_str() > after);
    let mut text = "<ListBucketResult><EncodingType>url</EncodingType>".to_owned();
    let mut last = "";
    for (key, object) in rest.by_ref().take(most) {
        last = key;
        let key = keys::encode(key.as_bytes(), true);
        text += &match object {
            None => format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
            Some(object) => format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><ETag>{}</ETag><StorageClass>{}</StorageClass>\
                 <LastModified>2024-01-02T03:04:05.000Z</LastModified></Contents>",
                object.bytes.len(),
                object.etag,
                object.class.as_deref().unwrap_or("STANDARD")
            ),
        };
    }
    match rest.next() {
        None => text += "<IsTruncated>false</IsTruncated>",
        Some(_) => {
            text += &format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
            );
        }
    }
    document(&(text + "</ListBucketResult>"))
}
