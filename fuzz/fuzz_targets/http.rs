//! Input from HTTP and WebDAV servers: parsing never panics, and accepted values are valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::http::content_range::ContentRange;
use proto::http::copy_report::CopyReport;
use proto::http::url::HttpUrl;
use proto::http::{date, digest, multistatus};

fn report_of<const N: usize>(pieces: [&[u8]; N]) -> CopyReport {
    let mut report = CopyReport::default();
    for piece in pieces {
        report.receive(piece).unwrap();
    }
    report
}

const FIELDS: [&str; 6] = [
    "repr-digest",
    "digest",
    "content-md5",
    "x-goog-hash",
    "x-amz-checksum-crc32c",
    "etag",
];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(resources) = multistatus::parse(bytes) {
        let collection = HttpUrl::new(true, "data.example", 443, b"/d/", None);
        let listing = multistatus::DavListing::of(&resources, &collection);
        assert!(listing.members.len() + listing.unknown.len() <= resources.len());
        for entry in listing.members {
            assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
            assert!(
                entry
                    .unique
                    .is_none_or(|etag| multistatus::is_strong_etag(&etag))
            );
        }
    }
    // However the network cuts it, a report says the same.
    let whole = report_of([bytes]);
    let (before, after) = bytes.split_at(bytes.len() / 3);
    let cut = report_of([before, after]);
    assert_eq!(cut.bytes(), whole.bytes());
    assert_eq!(cut.finish(true), whole.finish(true));
    let text = String::from_utf8_lossy(bytes);
    let _ = date::parse(&text);
    if let Some(field) = ContentRange::parse(&text)
        && let (Some(range), Some(length)) = (field.range, field.complete_length)
    {
        assert!(range.start < range.end && range.end <= length);
    }
    for field in FIELDS {
        let fields = [(field, text.as_ref()), ("server", "AmazonS3")];
        for (algorithm, hex) in digest::checksums_from_fields(fields, false) {
            assert_eq!(algorithm.parse_hex(&hex).as_ref(), Some(&hex));
            assert_eq!(hex.len(), algorithm.hex_len());
        }
    }
    let from = HttpUrl::new(true, "data.example", 443, b"/a/b", Some("secret"));
    if let Ok(next) = from.resolve_redirect(&text) {
        assert!(next.secure && next.port != 0);
        let sent = next.uri();
        assert!(sent.bytes().all(|b| b.is_ascii_graphic()), "{sent}");
        // The resolved URL resolves to itself.
        assert_eq!(
            from.resolve_redirect(&sent).map(|again| again.uri()),
            Ok(sent)
        );
    }
});
