//! Checksums of an object's parts: a composite checksum is that of the checksums of the parts, one after the other.

use ftp::Failure;
use ftp::failure::Operation;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::ByteRange;
use proto::s3::documents::{MAX_DOCUMENT, ObjectPartsPage};
use proto::s3::parts::MAX_PARTS;

use super::bucket::S3Bucket;
use super::checksums::hex_of_base64;
use super::requests::{call, not_understood};
use crate::storage::http::client::HttpClient;
use crate::storage::http::request::HttpRequestBody;
use crate::storage::http::response::HttpResponse;

/// Most parts whose lengths are asked for one by one.
const MAX_SINGLE_PARTS: u32 = 1000;

/// The algorithms, the cheapest first.
const ALGORITHMS: [(ChecksumAlgorithm, &str); 4] = [
    (ChecksumAlgorithm::Crc32c, "x-amz-checksum-crc32c"),
    (ChecksumAlgorithm::Crc32, "x-amz-checksum-crc32"),
    (ChecksumAlgorithm::Sha1, "x-amz-checksum-sha1"),
    (ChecksumAlgorithm::Sha256, "x-amz-checksum-sha256"),
];

/// A composite checksum, as an answer with the facts of an object has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectComposite {
    pub(super) algorithm: ChecksumAlgorithm,
    /// Lower-case hex.
    pub(super) sum: String,
    /// Number of parts.
    pub(super) parts: u32,
    /// The server says that it is one. Others have one of the bytes or of the parts, and do not say which.
    pub(super) is_certain: bool,
}

impl ObjectComposite {
    pub(super) fn of(response: &HttpResponse) -> Option<Self> {
        Self::from_fields(&|name| response.header(name))
    }

    fn from_fields<'r>(field: &dyn Fn(&str) -> Option<&'r str>) -> Option<Self> {
        let is_composite = match field("x-amz-checksum-type") {
            Some(kind) if kind != "COMPOSITE" => return None,
            kind => kind.is_some(),
        };
        let of_tag = field("etag").map(|tag| tag.trim_matches('"'));
        let of_tag = of_tag.and_then(|tag| tag.rsplit_once('-'));
        let mut found = ALGORITHMS
            .iter()
            .filter_map(|(algorithm, name)| Some((*algorithm, field(name)?)));
        let Some((algorithm, text)) = found.next() else {
            let (sum, count) = of_tag?;
            return Self::of_tag(sum, count, field);
        };
        let (text, count, is_numbered) = match (text.rsplit_once('-'), of_tag) {
            (Some((text, count)), _) => (text, count, true),
            (None, Some((_, count))) => (text, count, false),
            (None, None) => return None,
        };
        let sum = hex_of_base64(text)?;
        Some(Self {
            algorithm,
            sum: Some(sum).filter(|sum| sum.len() == algorithm.hex_len())?,
            parts: part_count(count)?,
            is_certain: is_composite || is_numbered,
        })
    }

    /// The tag of an object of parts is the MD5 of their MD5s, at Amazon and most others, unless it is encrypted with a key other
    /// than S3's own.
    fn of_tag<'r>(sum: &str, count: &str, field: &dyn Fn(&str) -> Option<&'r str>) -> Option<Self> {
        let has_other_key = field("x-amz-server-side-encryption")
            .is_some_and(|algorithm| algorithm != "AES256")
            || field("x-amz-server-side-encryption-customer-algorithm").is_some();
        let algorithm = ChecksumAlgorithm::Md5;
        let is_sum = sum.len() == algorithm.hex_len() && !has_other_key;
        Some(Self {
            algorithm,
            sum: algorithm.parse_hex(sum).filter(|_| is_sum)?,
            parts: part_count(count)?,
            is_certain: false,
        })
    }
}

fn part_count(text: &str) -> Option<u32> {
    let count = text.parse().ok();
    count.filter(|count| (1..=MAX_PARTS).contains(&u64::from(*count)))
}

/// The places of the parts of an object of `size` bytes; `None`: the server does not tell them. `asks_each`: whether each may be
/// asked for; otherwise all but the last are taken to be as long as the first one.
pub(super) fn part_ranges(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    key: &str,
    (count, asks_each): (u32, bool),
    size: u64,
    action: &Operation,
) -> Result<Option<Vec<ByteRange>>, Failure> {
    if count == 1 {
        return Ok(ranges_of(&[size], 1, size));
    }
    match sizes_by_attributes(client, bucket, key, action) {
        Err(failure) if failure.may_retry() => return Err(failure),
        Ok(sizes) => {
            if let Some(ranges) = ranges_of(&sizes, count, size) {
                return Ok(Some(ranges));
            }
        }
        // It may need a right of its own, and other servers do not have it.
        Err(_) => {}
    }
    let asked = if asks_each { count } else { 1 };
    if asked > MAX_SINGLE_PARTS {
        return Ok(None);
    }
    let mut sizes = Vec::new();
    for number in 1..=asked {
        let url = bucket.object_url(key, &[("partNumber", &number.to_string())]);
        let asked = call(client, "HEAD", &url, &[], HttpRequestBody::Empty, action);
        let response = match asked {
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(_) => return Ok(None),
            Ok(response) => response,
        };
        let length = response.length();
        response.discard_body();
        // A server without parts shows the length of the object.
        match length.filter(|length| *length < size) {
            Some(length) => sizes.push(length),
            None => return Ok(None),
        }
    }
    if let ([first], false) = (sizes.as_slice(), asks_each) {
        sizes = sizes_like(*first, size);
    }
    Ok(ranges_of(&sizes, count, size))
}

/// Lengths of parts of which all but the last are as long as the first one. None if these were too many.
fn sizes_like(first: u64, size: u64) -> Vec<u64> {
    if first == 0 || size.div_ceil(first) > MAX_PARTS {
        return Vec::new();
    }
    let starts = (0..size.div_ceil(first)).map(|n| n * first);
    starts.map(|start| first.min(size - start)).collect()
}

/// Places of parts of these lengths, if they are all of the object.
fn ranges_of(sizes: &[u64], count: u32, size: u64) -> Option<Vec<ByteRange>> {
    let mut at = 0_u64;
    let mut ranges = Vec::with_capacity(sizes.len());
    for length in sizes {
        let end = at.checked_add(*length)?;
        ranges.push(ByteRange::new(at, end)?);
        at = end;
    }
    (ranges.len() == count as usize && at == size).then_some(ranges)
}

/// GetObjectAttributes.
fn sizes_by_attributes(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    key: &str,
    action: &Operation,
) -> Result<Vec<u64>, Failure> {
    let (mut sizes, mut after) = (Vec::new(), 0);
    loop {
        let mut headers = vec![("x-amz-object-attributes", "ObjectParts".to_owned())];
        if after > 0 {
            headers.push(("x-amz-part-number-marker", after.to_string()));
        }
        let url = bucket.object_url(key, &[("attributes", "")]);
        let response = call(
            client,
            "GET",
            &url,
            &headers,
            HttpRequestBody::Empty,
            action,
        )?;
        let body = client.read_body(response, action, MAX_DOCUMENT)?;
        let page = ObjectPartsPage::parse(&body).map_err(|error| not_understood(action, error))?;
        sizes.extend(page.sizes);
        match page.next {
            Some(next) if next > after && sizes.len() as u64 <= MAX_PARTS => after = next,
            _ => return Ok(sizes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composite(fields: &[(&str, &'static str)]) -> Option<ObjectComposite> {
        ObjectComposite::from_fields(&|name| {
            let found = fields.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        })
    }

    #[test]
    fn a_composite_checksum_has_the_number_of_its_parts() {
        let sum = ("x-amz-checksum-crc32c", "mnGvKQ==-2");
        let found = composite(&[sum, ("x-amz-checksum-type", "COMPOSITE")]).unwrap();
        assert_eq!((found.sum.as_str(), found.parts), ("9a71af29", 2));
        assert!(found.is_certain && composite(&[sum]).unwrap().is_certain);
        // Neither the type nor a number: the tag tells that there are parts, and nobody what is summed.
        let bare = ("x-amz-checksum-crc32c", "mnGvKQ==");
        let found = composite(&[bare, ("etag", "\"abc-3\"")]).unwrap();
        assert_eq!((found.parts, found.is_certain), (3, false));
        for none in [
            &[bare][..],
            &[bare, ("etag", "\"abc\"")],
            &[
                bare,
                ("etag", "\"abc-3\""),
                ("x-amz-checksum-type", "FULL_OBJECT"),
            ],
            &[("x-amz-checksum-crc32c", "mnGvKQ==-0")],
            &[("x-amz-checksum-crc32c", "mnGv-2")],
        ] {
            assert_eq!(composite(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_tag_with_a_number_is_perhaps_the_md5_of_those_of_the_parts() {
        const TAG: &str = "\"5D41402abc4b2a76b9719d911017c592-3\"";
        let found = composite(&[("etag", TAG)]).unwrap();
        assert_eq!(found.algorithm, ChecksumAlgorithm::Md5);
        assert_eq!(found.sum, "5d41402abc4b2a76b9719d911017c592");
        assert!(found.parts == 3 && !found.is_certain);
        let own_key = ("x-amz-server-side-encryption", "AES256");
        assert!(composite(&[("etag", TAG), own_key]).is_some());
        for (name, value) in [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ] {
            assert_eq!(composite(&[("etag", TAG), (name, value)]), None, "{name}");
        }
        for other in ["\"abc-3\"", "\"5d41402abc4b2a76b9719d911017c592\""] {
            assert_eq!(composite(&[("etag", other)]), None, "{other}");
        }
    }

    #[test]
    fn parts_like_the_first_one_are_the_object() {
        assert_eq!(sizes_like(5, 12), [5, 5, 2]);
        assert_eq!(sizes_like(5, 10), [5, 5]);
        assert!(sizes_like(0, 10).is_empty() && sizes_like(1, 1 << 40).is_empty());
    }

    #[test]
    fn parts_are_known_if_they_are_the_whole_object() {
        let ranges = ranges_of(&[5, 3], 2, 8).unwrap();
        assert_eq!((ranges[1].start, ranges[1].end), (5, 8));
        assert_eq!(ranges_of(&[5, 3], 2, 9), None);
        assert_eq!(ranges_of(&[5, 3], 3, 8), None);
        assert_eq!(ranges_of(&[u64::MAX, 3], 2, 2), None);
    }
}
