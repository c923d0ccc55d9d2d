//! Bytes of HTTP and WebDAV servers: nothing panics, and what is taken from it is what can be used.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::http::content_range::ContentRange;
use proto::http::target::Target;
use proto::http::{date, digest, multistatus};

const FIELDS: [&str; 6] = [
    "repr-digest",
    "digest",
    "content-md5",
    "x-goog-hash",
    "x-amz-checksum-crc32c",
    "etag",
];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(resources) = multistatus::read(bytes) {
        let (_, entries) = multistatus::entries(&resources, &[b"d".to_vec()]);
        for entry in entries {
            assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
            assert!(entry.unique.is_none_or(|etag| multistatus::is_strong(&etag)));
        }
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = date::parse(&text);
    if let Some(told) = ContentRange::parse(&text)
        && let (Some(range), Some(all)) = (told.range, told.complete)
    {
        assert!(range.start < range.end && range.end <= all);
    }
    for field in FIELDS {
        for (algorithm, sum) in digest::told([(field, text.as_ref()), ("server", "AmazonS3")], false) {
            assert_eq!(algorithm.parse_hex(&sum).as_ref(), Some(&sum));
            assert_eq!(sum.len(), algorithm.hex_len());
        }
    }
    let from = Target::new(true, "data.example", 443, b"/a/b", Some("secret"));
    if let Ok(next) = from.follow(&text) {
        assert!(next.secure && next.port != 0);
        let sent = next.uri();
        assert!(sent.bytes().all(|b| b.is_ascii_graphic()), "{sent}");
        // It leads to itself.
        assert_eq!(from.follow(&sent).map(|again| again.uri()), Ok(sent));
    }
});
