//! Symbolic links at the destination (`--links copy`).

use super::Link;
use crate::Failure;
use crate::batch::Context;

/// Makes one link; a link that is there already is replaced. `Ok(Some(why))` when the destination has no
/// links.
pub(crate) async fn make_link(ctx: &Context, link: &Link) -> Result<Option<String>, Failure> {
    let (id, path) = (link.at.storage_id(), link.at.path());
    let mut session = ctx.session(&id).await?;
    let absolute = resolved(path, &link.target);
    let made = session.make_link(&link.target, &absolute, path).await?;
    ctx.pool.give(&id, session);
    Ok((!made).then(|| format!("{id} makes no symbolic links")))
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
}
