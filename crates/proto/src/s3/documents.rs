//! The documents of S3 (XML): pages of listings, parts of an upload, the end of an upload, errors.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;

use super::elements::{self, ElementEvent};
use crate::http::content_range::parse_number;
use crate::http::date;
use crate::timestamp::Timestamp;

/// Largest document that is read, bytes.
pub const MAX_DOCUMENT: usize = elements::MAX_DOCUMENT;
/// Most entries of one document. Servers send 1 000 at most.
const MAX_ENTRIES: usize = 100_000;

/// Error in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The XML is not well-formed, or has a document type declaration, which S3 does not use.
    #[error("it is not valid XML")]
    Malformed,
    /// It is another document than the request is answered with.
    #[error("it is not the document that answers this request")]
    Unexpected,
    /// A value that the document must have is missing or not valid.
    #[error("it lacks a value that it must have")]
    Incomplete,
    /// It is larger, nested more deeply or has more entries than any server sends.
    #[error("it is too large")]
    TooLarge,
}

/// Whether the objects of a storage class are in an archive: each can be read while a copy of it is restored.
pub fn is_archive(storage_class: &str) -> bool {
    matches!(storage_class, "GLACIER" | "DEEP_ARCHIVE")
}

/// An object of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: Vec<u8>,
    /// Bytes.
    pub size: Option<u64>,
    /// When it was stored.
    pub modified: Option<Timestamp>,
    /// Its entity tag, with quotes.
    pub etag: Option<String>,
    /// `STANDARD`, `GLACIER` and so on.
    pub storage_class: Option<String>,
}

impl ListedObject {
    /// Whether it is in an archive. A copy of it may be restored: listings do not tell, nor do they show the archives of
    /// `INTELLIGENT_TIERING`.
    pub fn is_archived(&self) -> bool {
        self.storage_class.as_deref().is_some_and(is_archive)
    }
}

/// A page of a listing (ListObjectsV2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// Common prefixes, each with the delimiter at its end.
    pub prefixes: Vec<Vec<u8>>,
    /// The token of the next page. `None`: this is the last one.
    pub next: Option<String>,
}

impl ListingPage {
    /// Parses the answer to ListObjectsV2.
    ///
    /// # Errors
    /// [`DocumentError`]; `Incomplete` also if it does not say whether it is the last page.
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut page = Self::default();
        let (mut object, mut is_encoded, mut is_truncated) = (ListedObject::default(), false, None);
        let mut root = RootName::default();
        elements::read(body, &mut |event| match event {
            ElementEvent::Begin(path) => {
                root.expect(path, "ListBucketResult")?;
                if names(path) == ["ListBucketResult", "Contents"] {
                    object = ListedObject::default();
                }
                Ok(())
            }
            ElementEvent::End(path, text) => match names(path).as_slice() {
                [_, "IsTruncated"] => {
                    is_truncated = parse_bool(text);
                    Ok(())
                }
                [_, "NextContinuationToken"] => {
                    page.next = Some(text.to_owned()).filter(|token| !token.is_empty());
                    Ok(())
                }
                [_, "EncodingType"] => {
                    is_encoded = text == "url";
                    Ok(())
                }
                [_, "CommonPrefixes", "Prefix"] => {
                    push_bounded(&mut page.prefixes, text.as_bytes().to_vec())
                }
                [_, "Contents"] => push_bounded(&mut page.objects, std::mem::take(&mut object)),
                [_, "Contents", field] => {
                    match *field {
                        "Key" => object.key = text.as_bytes().to_vec(),
                        "Size" => object.size = parse_number(text),
                        "LastModified" => object.modified = date::parse(text),
                        "ETag" => object.etag = Some(text.to_owned()),
                        "StorageClass" => object.storage_class = Some(text.to_owned()),
                        _ => {}
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
        })?;
        // The elements may come in any order.
        if is_encoded {
            let keys = page.objects.iter_mut().map(|object| &mut object.key);
            keys.chain(&mut page.prefixes).for_each(decode_key);
        }
        match (is_truncated, &page.next) {
            (Some(false), _) => page.next = None,
            (Some(true), Some(_)) => {}
            _ => return Err(DocumentError::Incomplete),
        }
        Ok(page)
    }
}

/// A stored part of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPart {
    /// Its number, from 1.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// Its entity tag, with quotes.
    pub etag: String,
    /// CRC-32C in base64, if the server has computed it.
    pub crc32c: Option<String>,
    /// When it arrived.
    pub modified: Option<Timestamp>,
}

/// A page of the parts of an upload (ListParts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartsPage {
    /// The parts.
    pub parts: Vec<StoredPart>,
    /// The number after which the next page begins. `None`: this is the last one.
    pub next: Option<u32>,
}

impl PartsPage {
    /// Parses the answer to ListParts.
    ///
    /// # Errors
    /// As [`ListingPage::parse`].
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut page = Self::default();
        let (mut part, mut is_truncated) = (StoredPart::default(), None);
        let mut root = RootName::default();
        elements::read(body, &mut |event| match event {
            ElementEvent::Begin(path) => {
                // Amazon's name, and moto's.
                root.expect_one(path, &["ListPartsResult", "ListPartsResponse"])?;
                if matches!(names(path).as_slice(), [_, "Part"]) {
                    part = StoredPart::default();
                }
                Ok(())
            }
            ElementEvent::End(path, text) => match names(path).as_slice() {
                [_, "IsTruncated"] => {
                    is_truncated = parse_bool(text);
                    Ok(())
                }
                [_, "NextPartNumberMarker"] => {
                    page.next = parse_small(text);
                    Ok(())
                }
                [_, "Part", "PartNumber"] => set(&mut part.number, parse_small(text)),
                [_, "Part", "Size"] => set(&mut part.size, parse_number(text)),
                [_, "Part", "ETag"] => {
                    part.etag = text.to_owned();
                    Ok(())
                }
                [_, "Part", "ChecksumCRC32C"] => {
                    part.crc32c = Some(text.to_owned());
                    Ok(())
                }
                [_, "Part", "LastModified"] => {
                    part.modified = date::parse(text);
                    Ok(())
                }
                [_, "Part"] if part.number == 0 || part.etag.is_empty() => {
                    Err(DocumentError::Incomplete)
                }
                [_, "Part"] => push_bounded(&mut page.parts, std::mem::take(&mut part)),
                _ => Ok(()),
            },
        })?;
        match (is_truncated, page.next) {
            (Some(false), _) => page.next = None,
            (Some(true), Some(next)) if next > 0 => {}
            _ => return Err(DocumentError::Incomplete),
        }
        Ok(page)
    }
}

/// A page of the lengths of an object's parts (GetObjectAttributes). Objects whose parts have no checksums have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectPartsPage {
    /// Bytes of each part, in the order of their numbers.
    pub sizes: Vec<u64>,
    /// The number after which the next page begins. `None`: this is the last one.
    pub next: Option<u32>,
}

impl ObjectPartsPage {
    /// Parses the answer to GetObjectAttributes.
    ///
    /// # Errors
    /// [`DocumentError`]; `Incomplete` also if parts are not in order.
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut page = Self::default();
        let (mut number, mut size, mut last, mut is_truncated) = (0, 0, 0, false);
        let mut root = RootName::default();
        elements::read(body, &mut |event| match event {
            ElementEvent::Begin(path) => root.expect(path, "GetObjectAttributesResponse"),
            ElementEvent::End(path, text) => match names(path).as_slice() {
                [_, "ObjectParts", "IsTruncated"] => {
                    is_truncated = parse_bool(text) == Some(true);
                    Ok(())
                }
                [_, "ObjectParts", "NextPartNumberMarker"] => {
                    page.next = parse_small(text);
                    Ok(())
                }
                [_, "ObjectParts", "Part", "PartNumber"] => set(&mut number, parse_small(text)),
                [_, "ObjectParts", "Part", "Size"] => set(&mut size, parse_number(text)),
                [_, "ObjectParts", "Part"] if number <= last => Err(DocumentError::Incomplete),
                [_, "ObjectParts", "Part"] => {
                    last = number;
                    push_bounded(&mut page.sizes, std::mem::take(&mut size))
                }
                _ => Ok(()),
            },
        })?;
        page.next = page.next.filter(|_| is_truncated);
        Ok(page)
    }
}

/// An unfinished upload of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedUpload {
    /// The key of its object.
    pub key: Vec<u8>,
    /// Its name.
    pub id: String,
    /// When it began.
    pub begun: Option<Timestamp>,
    /// The algorithm of its checksums (`CRC32C`), where the server says so.
    pub algorithm: Option<String>,
    /// `FULL_OBJECT` or `COMPOSITE`, where the server says so.
    pub checksum_type: Option<String>,
}

/// A page of the unfinished uploads of a bucket (ListMultipartUploads).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// The uploads.
    pub uploads: Vec<ListedUpload>,
    /// Key and name after which the next page begins. `None`: this is the last one.
    pub next: Option<(String, String)>,
}

impl UploadsPage {
    /// Parses the answer to ListMultipartUploads.
    ///
    /// # Errors
    /// As [`ListingPage::parse`].
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut page = Self::default();
        let (mut upload, mut is_encoded, mut is_truncated) = (ListedUpload::default(), false, None);
        let (mut key, mut id) = (Vec::new(), String::new());
        let mut root = RootName::default();
        elements::read(body, &mut |event| match event {
            ElementEvent::Begin(path) => root.expect(path, "ListMultipartUploadsResult"),
            ElementEvent::End(path, text) => {
                match names(path).as_slice() {
                    [_, "IsTruncated"] => is_truncated = parse_bool(text),
                    [_, "EncodingType"] => is_encoded = text == "url",
                    [_, "NextKeyMarker"] => key = text.as_bytes().to_vec(),
                    [_, "NextUploadIdMarker"] => text.clone_into(&mut id),
                    [_, "Upload", "Key"] => upload.key = text.as_bytes().to_vec(),
                    [_, "Upload", "UploadId"] => text.clone_into(&mut upload.id),
                    [_, "Upload", "Initiated"] => upload.begun = date::parse(text),
                    [_, "Upload", "ChecksumAlgorithm"] => upload.algorithm = filled(text),
                    [_, "Upload", "ChecksumType"] => upload.checksum_type = filled(text),
                    [_, "Upload"] if upload.key.is_empty() || upload.id.is_empty() => {
                        return Err(DocumentError::Incomplete);
                    }
                    [_, "Upload"] => push_bounded(&mut page.uploads, std::mem::take(&mut upload))?,
                    _ => {}
                }
                Ok(())
            }
        })?;
        if is_encoded {
            let keys = page.uploads.iter_mut().map(|upload| &mut upload.key);
            keys.chain([&mut key]).for_each(decode_key);
        }
        match is_truncated {
            Some(false) => Ok(page),
            Some(true) if !key.is_empty() => {
                let key = String::from_utf8(key).map_err(|_| DocumentError::Malformed)?;
                page.next = Some((key, id));
                Ok(page)
            }
            _ => Err(DocumentError::Incomplete),
        }
    }
}

/// The name of an upload in the answer to CreateMultipartUpload.
///
/// # Errors
/// [`DocumentError`]
pub fn upload_id(body: &[u8]) -> Result<String, DocumentError> {
    let id = root_field(body, "InitiateMultipartUploadResult", "UploadId")?;
    id.filter(|id| !id.is_empty())
        .ok_or(DocumentError::Incomplete)
}

/// Reads the answer to CompleteMultipartUpload, which has status 200 also when it is an error: the entity tag of the object.
///
/// # Errors
/// `Ok(Err(_))`: the error in it. [`DocumentError`]: it is neither.
pub fn completion(body: &[u8]) -> Result<Result<String, S3ErrorDocument>, DocumentError> {
    late_result(body, "CompleteMultipartUploadResult")
}

/// Reads the answer to CopyObject, which has status 200 also when it is an error.
///
/// # Errors
/// As [`completion`].
pub fn copy_result(body: &[u8]) -> Result<Result<String, S3ErrorDocument>, DocumentError> {
    late_result(body, "CopyObjectResult")
}

fn late_result(
    body: &[u8],
    success: &'static str,
) -> Result<Result<String, S3ErrorDocument>, DocumentError> {
    if let Ok(error) = S3ErrorDocument::parse(body) {
        return Ok(Err(error));
    }
    root_field(body, success, "ETag").map(|tag| Ok(tag.unwrap_or_default()))
}

/// The body of DeleteObjects, whose answer names the failures only.
pub fn removal_request(keys: &[&str]) -> String {
    let mut text =
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>".to_owned();
    for key in keys {
        let key = quick_xml::escape::escape(*key);
        let _ = write!(text, "<Object><Key>{key}</Key></Object>");
    }
    text.push_str("</Delete>");
    text
}

/// The first failure in the answer to DeleteObjects.
///
/// # Errors
/// [`DocumentError`]
pub fn removal_error(body: &[u8]) -> Result<Option<S3ErrorDocument>, DocumentError> {
    let (mut error, mut first) = (S3ErrorDocument::default(), None);
    let mut root = RootName::default();
    elements::read(body, &mut |event| match event {
        ElementEvent::Begin(path) => root.expect(path, "DeleteResult"),
        ElementEvent::End(path, text) => {
            match names(path).as_slice() {
                [_, "Error", "Code"] => error.code = text.to_owned(),
                [_, "Error", "Message"] => error.message = text.to_owned(),
                [_, "Error"] => {
                    first.get_or_insert(std::mem::take(&mut error));
                }
                _ => {}
            }
            Ok(())
        }
    })?;
    Ok(first)
}

/// An error of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3ErrorDocument {
    /// `NoSuchKey`, `SlowDown` and so on.
    pub code: String,
    /// In words.
    pub message: String,
    /// The region of the bucket, if the request was signed for another one.
    pub region: Option<String>,
}

impl S3ErrorDocument {
    /// Parses the body of a response that reports an error.
    ///
    /// # Errors
    /// [`DocumentError`]
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut error = Self::default();
        let mut root = RootName::default();
        elements::read(body, &mut |event| match event {
            ElementEvent::Begin(path) => root.expect(path, "Error"),
            ElementEvent::End(path, text) => {
                match names(path).as_slice() {
                    [_, "Code"] => error.code = text.to_owned(),
                    [_, "Message"] => error.message = text.to_owned(),
                    [_, "Region"] => error.region = Some(text.to_owned()),
                    _ => {}
                }
                Ok(())
            }
        })?;
        match error.code.is_empty() {
            true => Err(DocumentError::Incomplete),
            false => Ok(error),
        }
    }
}

/// A key for a role, which expires.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AssumedRole {
    /// Its public half.
    pub key: String,
    /// Its secret half.
    pub secret: String,
    /// The token of its session.
    pub token: String,
    /// When it ends (RFC 3339).
    pub ends: String,
}

/// Without the secrets.
impl std::fmt::Debug for AssumedRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AssumedRole")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The key in the answer to `action` of the service STS: AssumeRole, or AssumeRoleWithWebIdentity.
///
/// # Errors
/// [`DocumentError`]
pub fn assumed_role(body: &[u8], action: &str) -> Result<AssumedRole, DocumentError> {
    let (mut given, mut root) = (AssumedRole::default(), RootName::default());
    let name = format!("{action}Response");
    elements::read(body, &mut |event| match event {
        ElementEvent::Begin(path) => root.expect(path, &name),
        ElementEvent::End(path, text) => {
            if let [_, _, "Credentials", field] = names(path).as_slice() {
                match *field {
                    "AccessKeyId" => given.key = text.to_owned(),
                    "SecretAccessKey" => given.secret = text.to_owned(),
                    "SessionToken" => given.token = text.to_owned(),
                    "Expiration" => given.ends = text.to_owned(),
                    _ => {}
                }
            }
            Ok(())
        }
    })?;
    match given.key.is_empty() || given.secret.is_empty() {
        true => Err(DocumentError::Incomplete),
        false => Ok(given),
    }
}

/// A part that an upload is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedPart {
    /// Its number, from 1.
    pub number: u32,
    /// Its entity tag, with quotes.
    pub etag: String,
    /// CRC-32C in base64.
    pub crc32c: Option<String>,
}

/// The body of CompleteMultipartUpload. `parts` are in the order of their numbers.
pub fn completion_request(parts: &[CompletedPart]) -> String {
    let mut text =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for part in parts {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>",
            part.number,
            quick_xml::escape::escape(part.etag.as_str())
        );
        if let Some(sum) = &part.crc32c {
            let sum = quick_xml::escape::escape(sum.as_str());
            let _ = write!(text, "<ChecksumCRC32C>{sum}</ChecksumCRC32C>");
        }
        text.push_str("</Part>");
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}

/// The text of an element directly in the root, which has the name `root`.
fn root_field(
    body: &[u8],
    root: &'static str,
    field: &str,
) -> Result<Option<String>, DocumentError> {
    let (mut found, mut name) = (None, RootName::default());
    elements::read(body, &mut |event| match event {
        ElementEvent::Begin(path) => name.expect(path, root),
        ElementEvent::End(path, text) => {
            if names(path).get(1..) == Some(&[field]) {
                found = Some(text.to_owned());
            }
            Ok(())
        }
    })?;
    Ok(found)
}

/// Checks the name of the root, once.
#[derive(Default)]
struct RootName(bool);

impl RootName {
    fn expect(&mut self, path: &[String], name: &str) -> Result<(), DocumentError> {
        self.expect_one(path, &[name])
    }

    fn expect_one(&mut self, path: &[String], expected: &[&str]) -> Result<(), DocumentError> {
        let is_first = !std::mem::replace(&mut self.0, true);
        let is_expected = || matches!(path, [name] if expected.contains(&name.as_str()));
        match is_first && !is_expected() {
            true => Err(DocumentError::Unexpected),
            false => Ok(()),
        }
    }
}

fn names(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

fn push_bounded<T>(list: &mut Vec<T>, item: T) -> Result<(), DocumentError> {
    if list.len() >= MAX_ENTRIES {
        return Err(DocumentError::TooLarge);
    }
    list.push(item);
    Ok(())
}

fn set<T>(field: &mut T, value: Option<T>) -> Result<(), DocumentError> {
    *field = value.ok_or(DocumentError::Incomplete)?;
    Ok(())
}

fn filled(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn parse_small(text: &str) -> Option<u32> {
    parse_number(text).and_then(|number| u32::try_from(number).ok())
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.trim() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Decodes a key that was sent with `encoding-type=url`: Amazon and MinIO send a space as `+`, others as `%20`; all of
/// them escape a plus.
fn decode_key(key: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(key).replace('+', " ");
    *key = percent_decode_str(&text).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>";

    fn page(rest: &str) -> Result<ListingPage, DocumentError> {
        ListingPage::parse(format!("{HEAD}{rest}</ListBucketResult>").as_bytes())
    }

    #[test]
    fn a_page_has_objects_prefixes_and_the_token_of_the_next_one() {
        let page = page(
            "<Contents><Key>a%2Bb+c/%C3%BC</Key><LastModified>2024-02-03T04:05:06.000Z</LastModified>\
             <ETag>&quot;e&quot;</ETag><Size>7</Size><StorageClass>GLACIER</StorageClass></Contents>\
             <CommonPrefixes><Prefix>d%20e/</Prefix></CommonPrefixes>\
             <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>t=</NextContinuationToken>",
        )
        .unwrap();
        let object = &page.objects[0];
        assert_eq!(object.key, "a+b c/ü".as_bytes());
        assert_eq!(
            (object.size, object.modified),
            (Some(7), Some(Timestamp(1_706_933_106)))
        );
        assert_eq!(object.etag.as_deref(), Some("\"e\""));
        assert!(object.is_archived() && !is_archive("GLACIER_IR"));
        assert_eq!(page.prefixes, [b"d e/".to_vec()]);
        assert_eq!(page.next.as_deref(), Some("t="));
    }

    #[test]
    fn a_page_that_does_not_say_whether_it_is_the_last_one_is_none() {
        assert_eq!(page(""), Err(DocumentError::Incomplete));
        assert_eq!(
            page("<IsTruncated>true</IsTruncated>"),
            Err(DocumentError::Incomplete)
        );
        assert_eq!(
            page("<IsTruncated>perhaps</IsTruncated>"),
            Err(DocumentError::Incomplete)
        );
        let last = page("<IsTruncated>false</IsTruncated><NextContinuationToken/>").unwrap();
        assert_eq!(last, ListingPage::default());
        let other = b"<Error><Code>NoSuchBucket</Code></Error>";
        assert_eq!(ListingPage::parse(other), Err(DocumentError::Unexpected));
    }

    #[test]
    fn keys_are_decoded_only_where_the_server_says_that_it_has_encoded_them() {
        let raw = "<Contents><Key>a+%41</Key></Contents><IsTruncated>false</IsTruncated>";
        assert_eq!(page(raw).unwrap().objects[0].key, b"a+%41");
    }

    #[test]
    fn parts_of_an_upload_are_read() {
        let body =
            b"<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>2</PartNumber>\
            <ETag>\"x\"</ETag><Size>5</Size><LastModified>2024-02-03T04:05:06.000Z</LastModified>\
            <ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part></ListPartsResult>";
        let page = PartsPage::parse(body).unwrap();
        let part = StoredPart {
            number: 2,
            size: 5,
            etag: "\"x\"".to_owned(),
            crc32c: Some("AAAAAA==".to_owned()),
            modified: Some(Timestamp(1_706_933_106)),
        };
        assert_eq!(page.parts, [part]);
        let of_moto = std::str::from_utf8(body).unwrap();
        let of_moto = of_moto.replace("ListPartsResult", "ListPartsResponse");
        assert_eq!(PartsPage::parse(of_moto.as_bytes()), PartsPage::parse(body));
        let without = b"<ListPartsResult><IsTruncated>false</IsTruncated><Part><Size>5</Size></Part></ListPartsResult>";
        assert_eq!(PartsPage::parse(without), Err(DocumentError::Incomplete));
    }

    #[test]
    fn lengths_of_parts_are_read_in_their_order() {
        let page = |rest: &str| {
            let text = format!(
                "<GetObjectAttributesResponse><ObjectParts>{rest}</ObjectParts></GetObjectAttributesResponse>"
            );
            ObjectPartsPage::parse(text.as_bytes())
        };
        let part = |number| {
            format!("<Part><PartNumber>{number}</PartNumber><Size>{number}0</Size></Part>")
        };
        let more = "<IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>";
        let read = page(&format!("{}{}{more}", part(1), part(2))).unwrap();
        assert_eq!((read.sizes, read.next), (vec![10, 20], Some(2)));
        assert_eq!(
            page("<PartsCount>2</PartsCount>"),
            Ok(ObjectPartsPage::default())
        );
        assert!(page(&format!("{}{}", part(2), part(1))).is_err());
    }

    #[test]
    fn unfinished_uploads_are_read_page_by_page() {
        let page = |rest: &str| {
            let text = format!(
                "<ListMultipartUploadsResult><EncodingType>url</EncodingType>{rest}</ListMultipartUploadsResult>"
            );
            UploadsPage::parse(text.as_bytes())
        };
        let upload = "<Upload><Key>a%2Fb+c</Key><UploadId>u+/</UploadId><Initiated>2024-02-03T04:05:06.000Z</Initiated>\
            <Initiator><ID>x</ID></Initiator><ChecksumType>FULL_OBJECT</ChecksumType></Upload>";
        let read = page(&format!(
            "{upload}<IsTruncated>true</IsTruncated><NextKeyMarker>a%2Fb+c</NextKeyMarker>\
             <NextUploadIdMarker>u+/</NextUploadIdMarker>"
        ))
        .unwrap();
        let listed = ListedUpload {
            key: b"a/b c".to_vec(),
            id: "u+/".to_owned(),
            begun: Some(Timestamp(1_706_933_106)),
            algorithm: None,
            checksum_type: Some("FULL_OBJECT".to_owned()),
        };
        assert_eq!(read.uploads, [listed]);
        assert_eq!(read.next, Some(("a/b c".to_owned(), "u+/".to_owned())));
        let last = "<IsTruncated>false</IsTruncated><NextKeyMarker>x</NextKeyMarker>";
        assert_eq!(page(last), Ok(UploadsPage::default()));
        for incomplete in [
            "",
            "<IsTruncated>true</IsTruncated>",
            "<Upload/><IsTruncated>false</IsTruncated>",
        ] {
            assert_eq!(
                page(incomplete),
                Err(DocumentError::Incomplete),
                "{incomplete}"
            );
        }
    }

    #[test]
    fn the_end_of_an_upload_may_be_an_error_with_status_200() {
        let done =
            b"<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(completion(done), Ok(Ok("\"x-2\"".to_owned())));
        let error = b"<?xml version=\"1.0\"?>\n\n<Error><Code>InternalError</Code><Message>m</Message></Error>";
        assert_eq!(
            completion(error).unwrap().unwrap_err().code,
            "InternalError"
        );
        assert!(completion(b"").is_err());
        let begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(begun).as_deref(), Ok("u"));
    }

    #[test]
    fn a_removal_is_answered_with_its_failures() {
        let text = removal_request(&["a&b", "c"]);
        assert!(text.contains("<Object><Key>a&amp;b</Key></Object><Object><Key>c</Key></Object>"));
        assert_eq!(removal_error(b"<DeleteResult/>"), Ok(None));
        let denied =
            b"<DeleteResult><Error><Key>c</Key><Code>AccessDenied</Code></Error></DeleteResult>";
        assert_eq!(removal_error(denied).unwrap().unwrap().code, "AccessDenied");
        assert!(removal_error(b"").is_err());
    }

    #[test]
    fn a_completion_names_each_part_with_its_checksum() {
        let part = CompletedPart {
            number: 1,
            etag: "\"a\"".to_owned(),
            crc32c: Some("AAAAAA==".to_owned()),
        };
        let text = completion_request(&[part]);
        assert!(text.contains(
            "<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag>\
             <ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>"
        ));
    }

    #[test]
    fn documents_are_bounded() {
        let deep = "<a>".repeat(1000);
        assert_eq!(
            S3ErrorDocument::parse(deep.as_bytes()),
            Err(DocumentError::Unexpected)
        );
        let deep = format!("<Error>{deep}");
        assert_eq!(
            S3ErrorDocument::parse(deep.as_bytes()),
            Err(DocumentError::TooLarge)
        );
        let long = format!("<Error><Code>{}</Code></Error>", "x".repeat(20_000));
        assert_eq!(
            S3ErrorDocument::parse(long.as_bytes()),
            Err(DocumentError::TooLarge)
        );
        let entity = b"<!DOCTYPE Error [<!ENTITY e \"x\">]><Error><Code>&e;</Code></Error>";
        assert_eq!(
            S3ErrorDocument::parse(entity),
            Err(DocumentError::Malformed)
        );
    }
}
