//! Whose content a file has, as far as sessions that have stored it rely on that.
//!
//! A client that uploads under a temporary name and then renames the file relies on its content. If another account stored to
//! that name in between, or another program did, the content is no longer the client's; nor is it if another program has put
//! another file there. A client with several sessions stores, renames and sets times in any of them, so all stores of one
//! account are of one client.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use data::store::root::{FileChange, FileIdentity};
use parking_lot::{Mutex, MutexGuard};
use proto::path::VPath;

use super::{Inode, Uploader};

/// A name below a root, which its inode identifies.
pub(in crate::files) type StoredPlace = (Inode, VPath);

/// The contents of the files that sessions have stored last. The sessions hold them, and each holds one, which bounds their
/// number.
#[derive(Debug, Default)]
pub(super) struct StoredContents(Mutex<KnownContents>);

#[derive(Debug, Default)]
struct KnownContents {
    by_inode: HashMap<Inode, Weak<SharedContent>>,
    /// The content that was stored last under a name that no rename of a session has concerned since.
    by_place: HashMap<StoredPlace, Weak<SharedContent>>,
}

/// The content of one file.
#[derive(Debug)]
struct SharedContent(Mutex<ContentState>);

#[derive(Debug)]
struct ContentState {
    /// Counts the stores that have changed the content.
    stores: u64,
    /// The account from which all content comes; `None`: from several, or from an unknown one.
    owner: Option<Uploader>,
    /// The state in which the last store left the file; `None`: that store has not ended, or has failed.
    left: Option<FileIdentity>,
}

/// The part of a file's content that a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum KeptContent {
    /// Nothing: the store has created the file.
    IsNew,
    /// Nothing: the store replaces it.
    Nothing,
    /// A part, or all of it.
    Some,
}

impl StoredContents {
    /// Takes note that the content of a file, which is `before`, changes from now on. `by`: the account; `None`: an unknown one.
    pub(super) fn begin_change(
        &self,
        before: &FileIdentity,
        by: Option<&Uploader>,
        keeps: KeptContent,
    ) {
        if keeps == KeptContent::IsNew {
            // The entry is about a file that was removed.
            self.contents().by_inode.remove(&before.inode);
            return;
        }
        let Some(content) = self.get(before.inode) else {
            return;
        };
        let mut state = content.state();
        let left = state.left.take();
        state.stores += 1;
        let is_intact = left.is_none_or(|left| left.change_until(before) != FileChange::Content);
        if keeps == KeptContent::Nothing {
            state.owner = by.cloned();
        } else if !is_intact || state.owner.as_ref() != by {
            state.owner = None;
        }
    }

    /// Takes note of the state in which a store of ranges, or another change, left the file at `place`.
    pub(super) fn end_change(&self, place: &StoredPlace, file: FileIdentity) {
        self.contents().by_place.remove(place);
        if let Some(content) = self.get(file.inode) {
            content.state().left = Some(file);
        }
    }

    /// Follows a change of a file's name, times or rights.
    pub(super) fn carry_over(&self, before: &FileIdentity, after: FileIdentity) {
        let Some(content) = self.get(before.inode) else {
            return;
        };
        let mut state = content.state();
        if state.left.as_ref() == Some(before) {
            state.left = Some(after);
        }
    }

    /// Takes note that a session renames what is at `from`: from now on the names are those of a file that the server knows.
    /// If it is known to be of another account than what was stored at `to`, it does not count for that.
    pub(super) fn end_rename(&self, from: &StoredPlace, to: &StoredPlace) {
        let mut contents = self.contents();
        let owner_at = |place: Option<Weak<SharedContent>>| {
            let content = place.and_then(|content| content.upgrade())?;
            let owner = content.state().owner.clone();
            Some(owner)
        };
        let moved = contents.by_place.remove(from);
        let there = contents.by_place.get(to).cloned();
        let owners = owner_at(moved).zip(owner_at(there));
        if owners.is_none_or(|(moved, there)| moved == there) {
            contents.by_place.remove(to);
        }
    }

    /// The content of the file at `place` that `owner` has stored with nobody else. `is_whole`: nothing of an older content
    /// is left.
    fn end_store(
        &self,
        place: StoredPlace,
        file: FileIdentity,
        owner: &Uploader,
        is_whole: bool,
    ) -> Arc<SharedContent> {
        let mut contents = self.contents();
        let known = contents.by_inode.get(&file.inode).and_then(Weak::upgrade);
        let content = known.unwrap_or_else(|| {
            // Entries of files that no session relies on any more.
            let is_held = |content: &Weak<SharedContent>| content.strong_count() > 0;
            contents.by_inode.retain(|_, content| is_held(content));
            contents.by_place.retain(|_, content| is_held(content));
            let content = Arc::new(SharedContent(Mutex::new(ContentState {
                stores: 0,
                owner: Some(owner.clone()),
                left: None,
            })));
            contents
                .by_inode
                .insert(file.inode, Arc::downgrade(&content));
            content
        });
        let before = contents.by_place.get(&place).and_then(Weak::upgrade);
        // A session that relies on the name goes on doing so if another account stores there.
        if before.is_none_or(|before| before.state().owner.as_ref() == Some(owner)) {
            contents.by_place.insert(place, Arc::downgrade(&content));
        }
        drop(contents);
        let mut state = content.state();
        state.left = Some(file);
        if is_whole {
            state.owner = Some(owner.clone());
        }
        drop(state);
        content
    }

    fn get(&self, inode: Inode) -> Option<Arc<SharedContent>> {
        self.contents().by_inode.get(&inode).and_then(Weak::upgrade)
    }

    fn last_at(&self, place: &StoredPlace) -> Option<Arc<SharedContent>> {
        self.contents().by_place.get(place).and_then(Weak::upgrade)
    }

    /// The maps are consistent after every statement, so that a panic of the holder leaves them usable.
    fn contents(&self) -> MutexGuard<'_, KnownContents> {
        self.0.lock()
    }
}

impl SharedContent {
    fn state(&self) -> MutexGuard<'_, ContentState> {
        self.0.lock()
    }
}

/// The content that a session stored last. All clones of the session's files share it.
#[derive(Debug, Clone, Default)]
pub(in crate::files) struct LastUpload(Arc<Mutex<Option<UploadedContent>>>);

#[derive(Debug)]
struct UploadedContent {
    inode: Inode,
    content: Arc<SharedContent>,
    by: Uploader,
    /// [`ContentState::stores`] when the upload ended.
    stores: u64,
    /// All content comes from this session: nothing of an older file is left.
    is_whole: bool,
}

impl LastUpload {
    /// Records the state in which an exclusive upload left its file, and its name. `is_whole`: the upload has kept nothing of
    /// an older file.
    pub(super) fn record(
        &self,
        contents: &StoredContents,
        place: StoredPlace,
        file: FileIdentity,
        by: &Uploader,
        is_whole: bool,
    ) {
        let content = contents.end_store(place, file, by, is_whole);
        let stores = content.state().stores;
        *self.upload() = Some(UploadedContent {
            inode: file.inode,
            content,
            by: by.clone(),
            stores,
            is_whole,
        });
    }

    /// Forgets the file, because this session is about to change its content.
    pub(in crate::files) fn forget(&self, inode: Inode) {
        let mut upload = self.upload();
        if upload.as_ref().is_some_and(|upload| upload.inode == inode) {
            *upload = None;
        }
    }

    /// Whether `now` is the state in which the session has left the file, with no content but its own. More than the account
    /// counts here: other sessions of it may have more rights.
    pub(in crate::files) fn is_own(&self, now: &FileIdentity) -> bool {
        let upload = self.upload();
        let Some(upload) = upload.as_ref().filter(|upload| upload.is_whole) else {
            return false;
        };
        let state = upload.content.state();
        state.stores == upload.stores && state.left.as_ref() == Some(now)
    }

    /// Whether `now`, at `place`, is a state of the file that the session stored last, with content of others, or is a file of
    /// others where that one was; `None`: a link that leads to nothing. A change of its name, rights or time, by whatever
    /// session, is none of its content.
    pub(super) fn has_lost(
        &self,
        contents: &StoredContents,
        place: &StoredPlace,
        now: Option<&FileIdentity>,
    ) -> bool {
        let upload = self.upload();
        let Some(upload) = upload.as_ref() else {
            return false;
        };
        let is_own = |content: &Arc<SharedContent>| Arc::ptr_eq(content, &upload.content);
        let content = now.and_then(|now| Some((contents.get(now.inode)?, now)));
        let is_elsewhere = !content.as_ref().is_some_and(|(content, _)| is_own(content));
        if is_elsewhere && !contents.last_at(place).as_ref().is_some_and(is_own) {
            return false;
        }
        let Some((content, now)) = content else {
            // No session has stored it.
            return true;
        };
        let state = content.state();
        let is_as_left = state
            .left
            .is_some_and(|left| left.change_until(now) != FileChange::Content);
        state.owner.as_ref() != Some(&upload.by) || !is_as_left
    }

    fn upload(&self) -> MutexGuard<'_, Option<UploadedContent>> {
        self.0.lock()
    }
}
