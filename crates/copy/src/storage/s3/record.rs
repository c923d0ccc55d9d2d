//! The memory that this machine has of an unfinished upload, so that a later run of the same copy goes on with it. Whoever has the
//! lock of the destination uses it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use smallfile::regular_file;
use std::io::Read as _;

use crate::local::partial;

/// Longest record, bytes.
const MAX_RECORD: u64 = 16 << 10;

/// An upload that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BegunUpload {
    /// Its name at the server.
    pub(super) id: String,
    /// Bytes of each part but the last one.
    pub(super) part: u64,
    /// It was found at the server, begun by whomever: it is not aborted unless a copy goes on with it.
    #[serde(default)]
    pub(super) is_found: bool,
}

/// The place of a record.
#[derive(Debug, Clone)]
pub(super) struct UploadRecord(Option<PathBuf>);

impl UploadRecord {
    /// The record of the upload to a URL.
    pub(super) fn of(url: &str) -> Self {
        Self(partial::upload_record(url))
    }

    /// No record: the upload is that of this process alone.
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn load(&self) -> Option<BegunUpload> {
        let (file, _) = regular_file::open(self.0.as_ref()?).ok()?;
        let mut text = String::new();
        file.take(MAX_RECORD).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether the upload will be remembered.
    pub(super) fn save(&self, upload: &BegunUpload) -> bool {
        let text = serde_json::to_vec(upload);
        match (&self.0, text) {
            (Some(path), Ok(text)) => smallfile::replace(path, &text).is_ok(),
            _ => false,
        }
    }

    pub(super) fn forget(&self) {
        if let Some(path) = &self.0 {
            // Without it an upload that is over would be asked for once more.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_remembered_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let record = UploadRecord(Some(directory.path().join("r")));
        assert_eq!(record.load(), None);
        let upload = BegunUpload {
            id: "u".to_owned(),
            part: 5,
            is_found: false,
        };
        assert!(record.save(&upload));
        assert_eq!(record.load(), Some(upload.clone()));
        record.forget();
        assert_eq!(record.load(), None);
        assert!(!UploadRecord(None).save(&upload));
    }
}
