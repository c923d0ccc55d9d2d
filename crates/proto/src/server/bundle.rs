//! Bundles of small files: SITE BUNDLE, ERET BUNDLE, ESTO BUNDLE ([`crate::bundle`]).

use super::file_task::SuccessReply;
use super::replies::{self, CommandResult};
use super::session_state::{AnnouncedBundle, LoggedInSession};
use super::{FileRequest, SessionAction, SessionConfig, TransferKind};
use crate::bundle::{BundleEntry, BundleFile, BundleProof, MAX_FILES, MAX_PATH_BYTES};
use crate::command::DataType;
use crate::ranges::MAX_FILE_OFFSET;

impl LoggedInSession {
    /// SITE BUNDLE ADD. A refused line leaves a number of files that no ERET or ESTO names.
    pub(super) fn announce_bundle(
        &mut self,
        config: &SessionConfig,
        entries: Vec<BundleEntry>,
    ) -> CommandResult {
        for entry in entries {
            let path = self.resolve(&entry.path)?;
            let path_bytes = path.as_bytes().len();
            let announced = &mut self.announced_bundle;
            announced.path_bytes += path_bytes;
            if announced.files.len() >= MAX_FILES || announced.path_bytes > MAX_PATH_BYTES {
                *announced = AnnouncedBundle::default();
                let text = format!(
                    "A bundle has at most {MAX_FILES} files and {MAX_PATH_BYTES} bytes of paths."
                );
                return Ok(replies::reply(552, text));
            }
            let memory = &config.announcement_memory;
            if !announced.memory.add_file(memory, path_bytes) {
                *announced = AnnouncedBundle::default();
                let text = "Too many files are announced at the moment; announce fewer, or try again later.";
                return Ok(replies::reply(450, text));
            }
            announced.files.push(BundleFile {
                path,
                size: entry.size,
                modified: entry.modified,
            });
        }
        Ok(replies::reply(250, "OK."))
    }

    /// ERET BUNDLE
    pub(super) fn retrieve_bundle(&mut self, count: usize, directory: &[u8]) -> CommandResult {
        let files = self.take_bundle(count)?;
        let directory = self.resolve(directory)?;
        let kind = TransferKind::RetrieveBundle {
            directory: directory.clone(),
            files,
        };
        Ok(self.start_transfer("ERET", directory, kind))
    }

    /// ESTO BUNDLE
    pub(super) fn store_bundle(&mut self, count: usize, directory: &[u8]) -> CommandResult {
        let files = self.take_bundle(count)?;
        let directory = self.resolve(directory)?;
        let kind = TransferKind::StoreBundle {
            directory: directory.clone(),
            files,
        };
        Ok(self.start_transfer("ESTO", directory, kind))
    }

    /// SITE BUNDLE END
    pub(super) fn end_bundle(&mut self, proof: Option<BundleProof>) -> Vec<SessionAction> {
        let request = FileRequest::EndBundle(proof);
        let directory = self.cwd.clone();
        self.start_file_task("SITE BUNDLE", directory, request, SuccessReply::Bundle)
    }

    /// The announced files, if there are `count`. They are forgotten in any case, and so are the parameters that other
    /// transfers would have consumed.
    fn take_bundle(&mut self, count: usize) -> Result<Vec<BundleFile>, Vec<SessionAction>> {
        let parameters = std::mem::take(&mut self.next_transfer);
        let announced = std::mem::take(&mut self.announced_bundle);
        self.last_bundle_memory = announced.memory;
        if parameters.restart.is_some() {
            return Err(replies::reply(554, "REST cannot precede a bundle."));
        }
        if self.parameters.type_ == DataType::Ascii {
            return Err(replies::reply(554, "A bundle needs TYPE I."));
        }
        let total = announced
            .files
            .iter()
            .try_fold(0_u64, |total, file| total.checked_add(file.size));
        if total.is_none_or(|total| total > MAX_FILE_OFFSET) {
            return Err(replies::reply(552, "The bundle is too large."));
        }
        if announced.files.is_empty() || announced.files.len() != count {
            let text = format!(
                "{} files were announced with SITE BUNDLE ADD, not {count}.",
                announced.files.len()
            );
            return Err(replies::reply(503, text));
        }
        Ok(announced.files)
    }
}
