//! CKSM and SCKS (GFD.47).

use super::file_task::Then;
use super::replies::{self, Step};
use super::state::LoggedIn;
use super::{Action, FileRequest};
use crate::checksum::Algorithm;

impl LoggedIn {
    /// CKSM: 113 markers while it runs if OPTS CKSM asked for them, then 213 and the digest.
    pub(super) fn cksm(
        &mut self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        argument: &[u8],
    ) -> Step {
        let path = self.resolve(argument)?;
        let request = FileRequest::Checksum {
            algorithm,
            path: path.clone(),
            offset,
            length,
            marker_seconds: self.settings.checksum_seconds,
        };
        Ok(self.inspect("CKSM", path, request, Then::Digest))
    }

    /// SCKS: the next store must have this checksum.
    pub(super) fn scks(&mut self, algorithm: Algorithm, hex: String) -> Vec<Action> {
        self.next.store.expect = Some((algorithm, hex));
        replies::reply(200, "OK.")
    }
}
