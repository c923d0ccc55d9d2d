//! Documents of S3 servers and files of profiles: parsing never panics, and accepted values are valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::s3::documents::{self, ListingPage, MAX_DOCUMENT, PartsPage, S3ErrorDocument};
use proto::s3::keys;
use proto::s3::profiles::ProfileFile;

fuzz_target!(|bytes: &[u8]| {
    assert!(bytes.len() < MAX_DOCUMENT);
    if let Ok(page) = ListingPage::parse(bytes) {
        assert!(page.next.is_none_or(|token| !token.is_empty()));
        for object in page.objects {
            if let Some(name) = keys::name_below(&object.key, "d/") {
                assert!(!name.is_empty() && !name.contains(&b'/') && name != b"..");
            }
        }
    }
    if let Ok(page) = PartsPage::parse(bytes) {
        assert!(
            page.parts
                .iter()
                .all(|part| part.number > 0 && !part.etag.is_empty())
        );
        assert!(page.next.is_none_or(|number| number > 0));
    }
    if let Ok(error) = S3ErrorDocument::parse(bytes) {
        assert!(!error.code.is_empty());
        // One document is not both.
        assert!(ListingPage::parse(bytes).is_err());
    }
    if let Ok(id) = documents::upload_id(bytes) {
        assert!(!id.is_empty());
    }
    let _ = documents::completion(bytes);
    let _ = documents::copy_result(bytes);
    let _ = documents::removal_error(bytes);
    let _ = documents::assumed_role(bytes, "AssumeRole");
    if let Ok(key) = keys::key_of(bytes) {
        let encoded = keys::encode(key.as_bytes(), true);
        assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let _ = ProfileFile::parse(&String::from_utf8_lossy(bytes));
});
