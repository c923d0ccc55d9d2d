//! FTP and GridFTP servers as storages.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use data::job::Control;
use data::store::{Sink, Source};
use proto::checksum::Algorithm;
use proto::command::Command;
use proto::listing::RemoteEntry;
use proto::timestamp::Timestamp;

use super::contract::{
    Capabilities, Marked, NotRenamed, Question, Storage, Sums, ThirdParty, Visit,
};
use crate::remove::remove_tree;
use crate::session::Session;
use crate::session::links::Scrutiny;
use crate::transfer::{self, Attempt, TransferSpec};
use crate::{Exit, Failure};

/// Most sums of ranges that are asked of a server ahead of the answers...
const AHEAD: usize = 128;
/// ...and of one that is asked one after the other, a round trip each.
const IN_TURN: usize = 32;

#[async_trait]
impl Storage for Session {
    fn name(&self) -> &str {
        self.name()
    }

    fn capabilities(&self) -> Capabilities {
        let features = self.features();
        Capabilities {
            ranges: features.eret,
            partial_writes: features.esto,
            restarts: true,
            parallel: features.parallel,
            any_order: self.dialogue.may_extend(),
            markers: self.dialogue.may_extend(),
            adapts: features.tune,
            sums_on_the_way: features.stor_checksum,
            sets_time: features.mfmt,
            third_party: Some(ThirdParty::Ftp),
            concurrency: match self.takes_ahead() {
                true => AHEAD,
                false => IN_TURN,
            },
            is_here: self.is_on_this_machine(),
            rtt: self.rtt(),
        }
    }

    fn is_usable(&self) -> bool {
        self.is_usable()
    }

    fn is_wary(&self) -> bool {
        self.is_wary()
    }

    fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        self.check_path(path)
    }

    async fn stat(&mut self, path: &[u8]) -> Result<RemoteEntry, Failure> {
        self.stat(path).await
    }

    async fn list(&mut self, path: &[u8]) -> Result<Vec<Marked>, Failure> {
        self.list_marked(path, Scrutiny::Directories).await
    }

    async fn list_each(&mut self, path: &[u8], visit: &mut Visit<'_>) -> Result<(), Failure> {
        self.list_each(path, visit).await
    }

    async fn sums(&mut self, _path: &[u8]) -> Result<Sums, Failure> {
        let features = self.features();
        Ok(Sums {
            parts: features.checksums.clone(),
            whole: features.x_checksums.clone(),
        })
    }

    async fn checksum(
        &mut self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, Failure> {
        self.checksum(algorithm, offset, length, path).await
    }

    async fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        self.checksums(algorithm, ranges, path).await
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<Control>,
    ) -> Result<Attempt, Failure> {
        transfer::get(self, path, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<Control>,
    ) -> Result<Attempt, Failure> {
        transfer::put(self, source, path, spec, control).await
    }

    async fn pass(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Attempt, Failure> {
        let other = format!("{} speaks no FTP: nothing can be moved there", to.name());
        let to: &mut dyn Any = to;
        let to = to
            .downcast_mut::<Self>()
            .ok_or_else(|| Failure::new(Exit::Protocol, other))?;
        transfer::third_party(self, path, to, to_path, spec, progress).await
    }

    fn expect(&mut self, spec: &TransferSpec, questions: &[Question<'_>]) {
        let commands = questions.iter().flat_map(|question| match *question {
            Question::Sum {
                algorithm,
                offset,
                length,
                path,
            } => self.checksum_questions(algorithm, offset, length, path),
            Question::Facts(path) => self.stat_questions(path),
        });
        let commands: Vec<Command> = commands.collect();
        self.then_ask(spec, commands);
    }

    fn forget_questions(&mut self) {
        self.then.clear();
    }

    fn answers_ahead(&self, spec: &TransferSpec) -> bool {
        self.asks_ahead(spec)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.make_dir(path).await
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure> {
        self.make_link(target, absolute, link).await
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.delete(path).await
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), Failure> {
        remove_tree(self, path).await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), NotRenamed> {
        self.put_in_place(from, to, modified).await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        self.set_modified(path, time).await
    }

    async fn close(self: Box<Self>) {
        Self::close(*self).await;
    }
}
