use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct VisitedNames(Mutex<Vec<(Vec<u8>, TreeEntry)>>);

impl TreeVisitor for VisitedNames {
    fn visit(&self, _: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        let mut names = self.0.lock();
        names.push((name.to_vec(), entry));
        Ok(())
    }
}

fn following() -> (TreeWalk, Arc<VisitedNames>) {
    let visited = Arc::new(VisitedNames::default());
    let visitor = Arc::clone(&visited) as Arc<dyn TreeVisitor>;
    (
        TreeWalk::new(b"/t", SymlinkPolicy::Follow, visitor),
        visited,
    )
}

fn kinds(visited: &VisitedNames) -> Vec<&'static str> {
    let names = visited.0.lock();
    let kind = |(_, entry): &(Vec<u8>, TreeEntry)| match entry {
        TreeEntry::Directory(_) => "directory",
        TreeEntry::File(_) | TreeEntry::LinkedFile(..) => "file",
        TreeEntry::Link(_) => "link",
        TreeEntry::Skipped(_) => "skipped",
        TreeEntry::Failed(_) | TreeEntry::Unlisted(_) => "failed",
    };
    names.iter().map(kind).collect()
}

#[test]
fn a_name_that_is_listed_twice_is_visited_once_also_after_a_lost_connection() {
    let (walk, visited) = following();
    let mut top = PendingDirectory::root(None);
    let mut found = Vec::new();
    for name in [&b"a"[..], b"a", b"b", b"a", b"../b"] {
        let entry = ListedEntry::new(name, EntryKind::File);
        walk.visit_listed(&mut top, entry, &mut found).unwrap();
    }
    assert_eq!(kinds(&visited), ["file", "file", "failed"]);
}

#[test]
fn what_a_lost_listing_of_the_whole_tree_brought_is_not_visited_again_but_may_fail() {
    let (mut walk, visited) = following();
    for path in [&b"d"[..], b"d/a"] {
        let hash = walk.hasher.hash_one(path.to_vec());
        walk.visited_at_once.insert(hash);
    }
    let mut found = Vec::new();
    let mut top = PendingDirectory::root(None);
    let directory = ListedEntry::new(b"d", EntryKind::Dir);
    walk.visit_listed(&mut top, directory, &mut found).unwrap();
    let mut below = found.pop().unwrap();
    for name in [b"a", b"c"] {
        let entry = ListedEntry::new(name, EntryKind::File);
        walk.visit_listed(&mut below, entry, &mut found).unwrap();
    }
    let failure = Failure::refused("not readable");
    let unlisted = TreeEntry::Unlisted(failure.clone());
    walk.visit_path(b"d", TreeEntry::Failed(failure)).unwrap();
    walk.visit_path(b"d", unlisted).unwrap();
    assert_eq!(kinds(&visited), ["file", "failed", "failed"]);
}

#[test]
fn a_link_of_the_listing_of_the_whole_tree_has_nothing_below_it_in_the_next_one() {
    let (mut walk, visited) = following();
    walk.links_at_once.add(b"d");
    let (mut found, mut top) = (Vec::new(), PendingDirectory::root(None));
    let directory = ListedEntry::new(b"d", EntryKind::Dir);
    walk.visit_listed(&mut top, directory, &mut found).unwrap();
    let mut below = found.pop().unwrap();
    let file = ListedEntry::new(b"f", EntryKind::File);
    walk.visit_listed(&mut below, file, &mut found).unwrap();
    assert_eq!(kinds(&visited), ["directory", "failed"]);
}

#[test]
fn a_directory_that_is_its_own_ancestor_is_skipped() {
    let (walk, visited) = following();
    let top = PendingDirectory::root(Some("u1".to_owned()));
    let mut found = Vec::new();
    let own = ListedEntry {
        unique: Some("u1".to_owned()),
        ..ListedEntry::new(b"d", EntryKind::Dir)
    };
    walk.visit_entry(&top, &own, &mut found).unwrap();
    let linked = |name: &[u8], unique: Option<String>| ListedEntry {
        unique,
        ..ListedEntry::new(name, EntryKind::Dir)
    };
    walk.visit_linked_directory(&top, &linked(b"l", Some("u1".to_owned())), &mut found)
        .unwrap();
    assert!(found.is_empty());
    // The identity of the directory is unknown: one such link on the path is accepted.
    walk.visit_linked_directory(&top, &linked(b"m", None), &mut found)
        .unwrap();
    let once = found.pop().unwrap();
    walk.visit_linked_directory(&once, &linked(b"m", None), &mut found)
        .unwrap();
    assert!(found.is_empty());
    assert_eq!(
        kinds(&visited),
        ["skipped", "skipped", "directory", "failed"]
    );
}
