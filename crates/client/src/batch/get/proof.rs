//! The comparison of a get's bytes with their source.

use std::sync::Arc;

use data::store::Sink;
use data::store::file::FileSink;
use proto::checksum::Algorithm;
use proto::command::Command;

use super::super::request::extent;
use super::super::unchanged;
use super::{Get, Moved, length};
use crate::partial::{Target, local};
use crate::session::Session;
use crate::verify::{
    CONCURRENT_FROM, CONCURRENT_FROM_AHEAD, Check, Compared, Comparison, sum_local,
};
use crate::{Exit, Failure};

impl Get<'_> {
    /// Whether the server is to sum while the bytes move.
    pub(super) fn sums_early(&self, asks_ahead: bool) -> bool {
        let worth = match asks_ahead {
            true => CONCURRENT_FROM_AHEAD,
            false => CONCURRENT_FROM,
        };
        self.span.size.is_some_and(|size| size >= worth)
    }

    /// The questions for the server when the bytes are here.
    pub(super) fn questions(&self, session: &Session, check: Check, sums: bool) -> Vec<Command> {
        let sum = check.algorithm().filter(|_| sums).map(|algorithm| {
            let (offset, length) = extent(self.span.part);
            session.checksum_questions(algorithm, offset, length, self.path)
        });
        let facts = self.looks_again(check);
        let facts = facts.then(|| session.stat_questions(self.path));
        sum.into_iter().chain(facts).flatten().collect()
    }

    /// The source's sum, asked for over a second session while the bytes move. `None` when that
    /// was not wanted or does not work: then it is asked for afterwards.
    pub(super) fn sum_early(
        &self,
        algorithm: Option<Algorithm>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let pool = Arc::clone(&self.ctx.pool);
        let server = self.server.clone();
        let path = self.path.to_vec();
        let part = self.span.part;
        async move {
            let algorithm = algorithm?;
            let mut session = pool.take(&server).await.ok()?;
            let sum = source_sum(&mut session, algorithm, part, &path)
                .await
                .ok()?;
            pool.give(&server, session);
            Some(sum)
        }
    }

    /// Compares both ends; says what was compared.
    pub(super) async fn verify(
        &self,
        session: &mut Session,
        sink: &FileSink,
        check: Check,
        moved: &Moved,
    ) -> Result<String, Failure> {
        let Some(algorithm) = check.algorithm() else {
            return Ok(check.size_label(self.span.size.is_some()));
        };
        let inline = moved.attempt.as_ref();
        let inline = inline.and_then(|a| a.report.digest.clone());
        let copy = self.copy_sum(sink, algorithm, inline).await?;
        let copy =
            copy.ok_or_else(|| Failure::new(Exit::Local, "what was written cannot be read again"));
        let source = match (&moved.remote, &copy) {
            (Some(sum), _) => Ok(sum.clone()),
            // Nothing would be compared with it.
            (None, Err(_)) => Ok(String::new()),
            (None, Ok(_)) => source_sum(session, algorithm, self.span.part, self.path).await,
        };
        let comparison = Comparison {
            check,
            shown: &self.item.source.display(),
            disputed: self.disputed,
        };
        match comparison.of(algorithm, source, copy)? {
            Compared::Same => Ok(check.label()),
            Compared::SizeOnly(warning) => {
                self.ctx.warn(warning);
                Ok(check.size_label(self.span.size.is_some()))
            }
        }
    }

    /// The copy's sum: as computed on the way, else of the open partial file.
    async fn copy_sum(
        &self,
        sink: &FileSink,
        algorithm: Algorithm,
        inline: Option<String>,
    ) -> Result<Option<String>, Failure> {
        if inline.is_some() || matches!(self.target, Target::Direct { .. }) {
            return Ok(inline);
        }
        match sink.reread() {
            Some(written) => sum_local(algorithm, written, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn check_length(&self, sink: &FileSink) -> Result<(), Failure> {
        let (Target::File(partial), Some(size)) = (self.target, self.span.size) else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local(&partial.path, e))?;
        if length == size {
            return Ok(());
        }
        let message = format!(
            "{}: {length} bytes arrived, {size} were announced",
            self.item.source.display(),
        );
        Err(Failure::new(Exit::Integrity, message))
    }

    /// A large file may have changed while it moved; a small one's sum, asked for afterwards, has
    /// told already.
    fn looks_again(&self, check: Check) -> bool {
        let large = self.span.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Check::Bytes && large && self.item.facts.size.is_some()
    }

    pub(super) async fn check_source(
        &self,
        session: &mut Session,
        check: Check,
    ) -> Result<(), Failure> {
        if !self.looks_again(check) {
            return Ok(());
        }
        let now = session.stat(self.path).await?;
        unchanged(&self.item.source, self.item.facts, &now)
    }
}

/// The sum of what is copied, at the source.
async fn source_sum(
    session: &mut Session,
    algorithm: Algorithm,
    part: Option<(u64, u64)>,
    path: &[u8],
) -> Result<String, Failure> {
    let (offset, length) = extent(part);
    session.checksum(algorithm, offset, length, path).await
}
