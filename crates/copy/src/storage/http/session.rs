//! A session with an HTTP server, and what it remembers of the server's files.

use std::sync::Arc;
use std::time::Duration;

use proto::http::url::HttpUrl;
use proto::listing::ListedEntry;

use super::changes::{self, PathUrls, Removable};
use super::client::{HttpClient, HttpOrigin};
use super::connections::HttpConnections;
use super::expected::ExpectedFetch;
use super::facts::HttpFileFacts;
use super::lookup::{FileUrls, ResourceFacts, WebDavSupport, begin_fetch, examine};
use ftp::credentials::Credential;
use ftp::{ConnectionSecurity, Failure};

/// Most files of which a session remembers that it has stored them: the partial file and the final one of a copy, and some more.
const MAX_STORED_FILES: usize = 8;

/// How small files are asked for, as far as the server's answers have told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SmallFileRequests {
    Untried,
    /// The response to GET tells what that to HEAD does: whether HEAD had checksums.
    One {
        head_has_checksums: bool,
    },
    /// HEAD and GET: the response to GET has told less.
    Two,
}

/// A session with an HTTP server.
#[derive(Debug)]
pub(crate) struct HttpStorage {
    pub(super) name: String,
    pub(super) connections: HttpConnections,
    /// The server has told that it copies nothing from or to other servers.
    pub(super) lacks_copies: bool,
    /// The server has told that it makes no macaroons.
    pub(super) lacks_macaroons: bool,
    /// Path and facts of the last file that was examined.
    pub(super) last_facts: Option<(Vec<u8>, HttpFileFacts)>,
    pub(super) next: ExpectedFetch,
    small_files: SmallFileRequests,
    /// Path of the last file whose requests were redirected, and their target.
    last_target: Option<(Vec<u8>, HttpUrl)>,
    /// The last directory of which the server has told whether it has WebDAV there.
    webdav: (Vec<u8>, WebDavSupport),
    /// Paths of the last files that this session has stored, the latest last.
    stored_files: Vec<Vec<u8>>,
}

impl HttpStorage {
    /// A session with a server; no request is sent yet. `target` is any URL of the server, with the
    /// query that goes with every request.
    ///
    /// # Errors
    /// `Usage`: the credential cannot be expressed in HTTP.
    pub(crate) fn new(
        target: &HttpUrl,
        credential: &Credential,
        security: &Arc<ConnectionSecurity>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let origin = HttpOrigin::new(target.with_path(b"/"), credential, security)?;
        Ok(Self {
            name: target.authority(),
            connections: HttpConnections::new(origin, timeout),
            lacks_copies: false,
            lacks_macaroons: false,
            last_facts: None,
            next: ExpectedFetch::default(),
            small_files: SmallFileRequests::Untried,
            last_target: None,
            webdav: (Vec::new(), WebDavSupport::Unknown),
            stored_files: Vec::new(),
        })
    }

    pub(super) fn url_for(&self, path: &[u8]) -> HttpUrl {
        self.connections.origin.root_url.with_path(path)
    }

    pub(super) fn urls(&self, path: &[u8]) -> PathUrls {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        PathUrls {
            file: self.url_for(path),
            collection: self.url_for(&[path, b"/"].concat()),
        }
    }

    fn file_urls(&self, path: &[u8]) -> FileUrls {
        let last = self.last_target.as_ref();
        FileUrls {
            requested: self.url_for(path),
            last_target: last
                .filter(|(of, _)| of == path)
                .map(|(_, target)| target.clone()),
        }
    }

    fn note_target(&mut self, path: &[u8], target: HttpUrl) {
        if target != self.url_for(path) {
            self.last_target = Some((path.to_vec(), target));
        }
    }

    /// Runs requests on a thread for blocking calls.
    pub(super) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut HttpClient) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.connections.blocking(work).await
    }

    /// Forgets what the session knows of files, which it is about to change.
    pub(super) fn forget(&mut self) {
        self.last_facts = None;
        self.next.drop_begun();
    }

    /// The entry of a path. The facts of a file are kept if they came with the answer.
    pub(super) async fn examine(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        self.next.drop_begun();
        let urls = self.file_urls(path);
        let name = last_name(path).to_vec();
        let directory = path.strip_suffix(&*name).unwrap_or(path);
        let support = match &self.webdav {
            (known, support) if known == directory => *support,
            _ => WebDavSupport::Unknown,
        };
        let facts = self.blocking(move |client| examine(client, &urls, &name, support));
        let ResourceFacts {
            entry,
            file,
            support,
        } = facts.await?;
        self.webdav = (directory.to_vec(), support);
        self.last_facts = file.map(|facts| (path.to_vec(), facts));
        if let Some((_, facts)) = &self.last_facts {
            let target = facts.url.clone();
            self.note_target(path, target);
        }
        Ok(entry)
    }

    /// Whether the server has WebDAV, in the last directory of which it has told.
    pub(super) fn has_webdav(&self) -> bool {
        self.webdav.1 == WebDavSupport::Has
    }

    /// The current facts of a file.
    pub(super) async fn current_facts(&mut self, path: &[u8]) -> Result<HttpFileFacts, Failure> {
        self.next.drop_begun();
        let urls = self.file_urls(path);
        let facts = self.blocking(move |client| {
            let facts = urls.head(client);
            facts.map_err(|refused| refused.failure)
        });
        let (facts, is_directory) = facts.await?;
        self.note_target(path, facts.url.clone());
        if let SmallFileRequests::One { head_has_checksums } = &mut self.small_files {
            *head_has_checksums |= !facts.checksums.is_empty();
        }
        match is_directory {
            false => Ok(facts),
            true => Err(Failure::usage(format!(
                "{} is a directory",
                self.url_for(path)
            ))),
        }
    }

    /// Facts of a file: the last ones if they are of the same path, otherwise current ones. The next transfer is of this version.
    pub(super) async fn file_facts(&mut self, path: &[u8]) -> Result<HttpFileFacts, Failure> {
        if let Some((at, facts)) = &self.last_facts
            && at == path
        {
            return Ok(facts.clone());
        }
        let facts = self.current_facts(path).await?;
        self.last_facts = Some((path.to_vec(), facts.clone()));
        Ok(facts)
    }

    /// The facts of a file. If it is small, and fetched next, one request asks for its bytes as well.
    pub(super) async fn facts_to_fetch(&mut self, path: &[u8]) -> Result<HttpFileFacts, Failure> {
        let is_known = self.last_facts.as_ref().is_some_and(|(at, _)| at == path);
        if !self.next.take_expected(path) || is_known {
            return self.file_facts(path).await;
        }
        let head_has_checksums = match self.small_files {
            SmallFileRequests::Untried => {
                let facts = self.file_facts(path).await?;
                let head_has_checksums = !facts.checksums.is_empty();
                self.small_files = SmallFileRequests::One { head_has_checksums };
                return Ok(facts);
            }
            SmallFileRequests::One { head_has_checksums } => head_has_checksums,
            SmallFileRequests::Two => return self.file_facts(path).await,
        };
        let url = self.url_for(path);
        let begun = self.blocking(move |client| begin_fetch(client, &url));
        let tells_all =
            |(facts, _): &(HttpFileFacts, _)| !(head_has_checksums && facts.checksums.is_empty());
        let Some((facts, response)) = begun.await?.filter(tells_all) else {
            let facts = self.file_facts(path).await?;
            // It may be this file alone of which neither tells.
            if facts.size.is_some() && (!head_has_checksums || !facts.checksums.is_empty()) {
                self.small_files = SmallFileRequests::Two;
            }
            return Ok(facts);
        };
        self.note_target(path, facts.url.clone());
        self.last_facts = Some((path.to_vec(), facts.clone()));
        self.next.begin(path, response);
        Ok(facts)
    }

    /// Whether this session has stored the file at a path.
    pub(super) fn has_stored(&self, path: &[u8]) -> bool {
        self.stored_files.iter().any(|stored| stored == path)
    }

    pub(super) fn remember_stored(&mut self, path: &[u8]) {
        self.forget_stored(path);
        if self.stored_files.len() >= MAX_STORED_FILES {
            self.stored_files.remove(0);
        }
        self.stored_files.push(path.to_vec());
    }

    pub(super) fn forget_stored(&mut self, path: &[u8]) {
        self.stored_files.retain(|stored| stored != path);
    }

    pub(super) async fn remove_what(
        &mut self,
        path: &[u8],
        what: Removable,
    ) -> Result<(), Failure> {
        let urls = self.urls(path);
        self.forget();
        self.forget_stored(path);
        self.blocking(move |client| changes::remove(client, &urls, what))
            .await
    }
}

/// The last component of a path.
pub(in crate::storage) fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}
