//! Files with secrets: read only if they are their user's alone.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use smallfile::regular_file;
use zeroize::Zeroizing;

/// A file that is not used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// There is none.
    #[error("{0} does not exist")]
    Missing(String),
    /// It is not its user's alone, or cannot be read; the text names the file.
    #[error("{0}")]
    Unusable(String),
}

/// Reads a file of at most `longest` bytes that belongs to the user, or to root, and that others may not read.
///
/// # Errors
/// See [`PrivateFileError`].
pub fn read(path: &Path, longest: u64) -> Result<Zeroizing<Vec<u8>>, PrivateFileError> {
    let name = path.display();
    let unusable = |reason: String| PrivateFileError::Unusable(format!("{name}: {reason}"));
    let (file, meta) = match regular_file::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(PrivateFileError::Missing(name.to_string()));
        }
        Err(error) => return Err(unusable(error.to_string())),
    };
    if let Some(reason) = exposure_of_file(&meta, path) {
        return Err(unusable(reason));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    regular_file::read((file, meta), longest, &mut bytes)
        .map_err(|error| unusable(error.to_string()))?;
    Ok(bytes)
}

/// The reason why others decide what is in a file, and the command that ends that.
pub fn writers_of_file(meta: &std::fs::Metadata, path: &Path) -> Option<String> {
    let name = path.display();
    foreign_owner(meta, path).or_else(|| {
        (meta.mode() & 0o022 != 0)
            .then(|| format!("others may write it; keep it to yourself (chmod go-w {name})"))
    })
}

/// The reason why a file with a secret is not private, and the command that makes it so.
pub fn exposure_of_file(meta: &std::fs::Metadata, path: &Path) -> Option<String> {
    let name = path.display();
    // ftp(1) refuses a .netrc with such permissions, too (netrc(5)).
    foreign_owner(meta, path).or_else(|| {
        (meta.mode() & 0o077 != 0)
            .then(|| format!("others may read it; keep it to yourself (chmod 600 {name})"))
    })
}

fn foreign_owner(meta: &std::fs::Metadata, path: &Path) -> Option<String> {
    // The effective user decides, as for every other file access of this process.
    let user = rustix::process::geteuid().as_raw();
    (meta.uid() != user && meta.uid() != 0).then(|| {
        let (owner, name) = (meta.uid(), path.display());
        format!("it belongs to user {owner}, not to you; make it yours (chown {user} {name})")
    })
}
