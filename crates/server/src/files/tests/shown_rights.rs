//! Listings and facts show to sessions with a token which rights it gives, and where something is not shown.

use super::path_rights::{is_denied, session};
use super::*;

#[test]
fn directories_above_a_scope_show_only_the_way() {
    let session = session("storage.read:/in/dir");
    let names = |path: &str| session.lines(list(path, ListFormat::Names));
    assert_eq!(names("/"), ["in"]);
    assert_eq!(names("/in"), ["dir"]);
    assert_eq!(names("/in/dir"), ["deep", "file"]);
    let recursive = ListRequest {
        recursive: true,
        deflate: false,
        ..list("/", ListFormat::Names)
    };
    let all = session.lines(recursive);
    assert_eq!(all, [".", "in", "in/dir", "in/dir/deep", "in/dir/file"]);
    // `l` is missing where something is.
    let own_line = |path: &str| {
        let facts = ListFormat::Facts(FactSet::parse("Type;Perm;"));
        session.lines(list(path, facts)).remove(0)
    };
    assert_eq!(own_line("/in"), "Type=cdir;Perm=e; .");
    assert_eq!(own_line("/in/dir"), "Type=cdir;Perm=el; .");
    session.run(&FileRequest::ChangeDir(v("/in"))).unwrap();
    assert!(is_denied(session.run(&FileRequest::Stat(v("/in/file")))));
    assert!(is_denied(session.run(&FileRequest::ChangeDir(v("/out")))));
}

#[test]
fn facts_show_the_rights_of_the_token() {
    let session = session("storage.read:/in storage.create:/in/dir");
    for (path, read, write) in [
        ("/in/file", true, false),
        ("/in", true, false),
        ("/in/dir", true, true),
        ("/in/dir/file", true, false),
        // Its listing does not show everything.
        ("/", false, false),
    ] {
        let FileResponse::Entry(entry) = session.run(&FileRequest::Stat(v(path))).unwrap() else {
            panic!("no entry");
        };
        let permissions = (entry.permissions.read, entry.permissions.write);
        assert_eq!(permissions, (read, write), "{path}");
    }
}
