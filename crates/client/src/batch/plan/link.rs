//! Symbolic links at the destination (`--links copy`).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::Link;
use crate::batch::Context;
use crate::location::Location;
use crate::partial::local;
use crate::{Exit, Failure};

/// Makes one link; a link that is there already is replaced. `Ok(Some(why))` when the destination has no
/// links.
pub(crate) async fn make_link(ctx: &Context, link: &Link) -> Result<Option<String>, Failure> {
    match &link.at {
        Location::Pipe => Ok(None),
        Location::Local(path) => make_local(path, &link.target).map(|()| None),
        Location::Remote { server, path } => {
            let mut session = ctx.session(server).await?;
            let absolute = resolved(path, &link.target);
            let made = session.make_link(&link.target, &absolute, path).await?;
            ctx.pool.give(server, session);
            Ok((!made).then(|| format!("{server} makes no symbolic links")))
        }
    }
}

fn make_local(path: &Path, target: &[u8]) -> Result<(), Failure> {
    let target = Path::new(std::ffi::OsStr::from_bytes(target));
    let made = match symlink(target, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
            if !is_link {
                let message = format!("{}: exists, and is no link", path.display());
                return Err(Failure::new(Exit::Local, message));
            }
            fs::remove_file(path).and_then(|()| symlink(target, path))
        }
        made => made,
    };
    made.map_err(|e| local(path, e))
}

/// The path that `target` in the link `link` leads to, `..` taken by the text.
fn resolved(link: &[u8], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = link
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty())
        .collect();
    parts.pop();
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    [b"/", parts.join(&b'/').as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_resolved_from_the_links_directory() {
        assert_eq!(resolved(b"/t/a/l", b"../f"), b"/t/f");
        assert_eq!(resolved(b"/t/l", b"b/./c"), b"/t/b/c");
        assert_eq!(resolved(b"/l", b"."), b"/");
    }

    #[test]
    fn a_link_replaces_a_link_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("l");
        make_local(&at, b"a").unwrap();
        make_local(&at, b"b").unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("b"));
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        assert!(make_local(&file, b"a").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
