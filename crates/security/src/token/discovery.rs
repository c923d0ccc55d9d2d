//! Where a client finds its token (WLCG Bearer Token Discovery).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::MAX_TOKEN;

/// Permission bits that a token file must not have: writing by the group, anything by others.
const FORBIDDEN_MODE: u32 = 0o027;

/// The reason why a token that was named cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenDiscoveryError(pub String);

/// Looks in BEARER_TOKEN, the file of BEARER_TOKEN_FILE, `$XDG_RUNTIME_DIR/bt_u$ID`, `/tmp/bt_u$ID`,
/// in this order. `None`: none is there.
///
/// # Errors
/// A place that is set has no valid token, or others may read its file.
pub fn discover_token() -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    let uid = rustix::process::geteuid().as_raw();
    discover_in(|name| std::env::var_os(name), uid, Path::new("/tmp"))
}

/// Reads the token in a file that the user has named.
///
/// # Errors
/// The file cannot be read, others may read or change it, or it holds no token.
pub fn read_token_file(path: &Path) -> Result<Zeroizing<String>, TokenDiscoveryError> {
    let uid = rustix::process::geteuid().as_raw();
    token_of_file(path, uid, FileTrust::Named)?.ok_or_else(|| {
        let path = path.display();
        TokenDiscoveryError(format!(
            "cannot read the token {path}: there is no such file"
        ))
    })
}

/// How a token file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileTrust {
    /// The user has named it; it may be a link, as secrets of containers are.
    Named,
    /// It has a well-known name in a directory where others may make files.
    WellKnown,
}

fn discover_in(
    variable: impl Fn(&str) -> Option<OsString>,
    uid: u32,
    temporary: &Path,
) -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    // An empty variable is one that a script has cleared.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(value) = set("BEARER_TOKEN") {
        let bytes = Zeroizing::new(value.into_encoded_bytes());
        return token_of(&bytes, "BEARER_TOKEN").map(Some);
    }
    if let Some(path) = set("BEARER_TOKEN_FILE") {
        let path = PathBuf::from(path);
        let found = token_of_file(&path, uid, FileTrust::Named)?;
        return found.map(Some).ok_or_else(|| {
            let path = path.display();
            TokenDiscoveryError(format!(
                "cannot read the token {path} of BEARER_TOKEN_FILE: there is no such file"
            ))
        });
    }
    let runtime = set("XDG_RUNTIME_DIR").map(PathBuf::from);
    for directory in runtime.iter().map(PathBuf::as_path).chain([temporary]) {
        let path = directory.join(format!("bt_u{uid}"));
        if let Some(token) = token_of_file(&path, uid, FileTrust::WellKnown)? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// The token in a file; `None` if there is no file.
fn token_of_file(
    path: &Path,
    uid: u32,
    trust: FileTrust,
) -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    let name = path.display();
    let failed =
        |reason: String| TokenDiscoveryError(format!("cannot use the token {name}: {reason}"));
    let link = match trust {
        FileTrust::Named => rustix::fs::OFlags::empty(),
        FileTrust::WellKnown => rustix::fs::OFlags::NOFOLLOW,
    };
    // Without O_NONBLOCK a pipe with this name would block for ever.
    let flags = (link | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    // The open file is examined, because the name may lead to another one by now.
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    if metadata.uid() != uid && !(trust == FileTrust::Named && metadata.uid() == 0) {
        return Err(failed(format!(
            "it belongs to user number {}, not to you",
            metadata.uid()
        )));
    }
    if metadata.mode() & FORBIDDEN_MODE != 0 {
        return Err(failed(format!(
            "others may read or change it (mode {:04o}); write: chmod 600 {name}",
            metadata.mode() & 0o7777
        )));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TOKEN + 2));
    file.take(MAX_TOKEN as u64 + 2)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    token_of(&bytes, &name.to_string()).map(Some)
}

/// The token in the content of a variable or file: white space around it is removed.
fn token_of(content: &[u8], place: &str) -> Result<Zeroizing<String>, TokenDiscoveryError> {
    let token = content.trim_ascii();
    let failed = |reason: &str| TokenDiscoveryError(format!("{place} holds no token: {reason}"));
    if token.is_empty() {
        return Err(failed("it is empty"));
    }
    if token.len() > MAX_TOKEN {
        return Err(failed("it is longer than 16 KiB"));
    }
    // The characters of a bearer token (RFC 6750 section 2.1).
    let is_token_byte = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    match std::str::from_utf8(token) {
        Ok(text) if token.iter().all(is_token_byte) => Ok(Zeroizing::new(text.to_owned())),
        _ => Err(failed(
            "it has characters that a bearer token cannot have (RFC 6750)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct DiscoveryFixture {
        runtime: tempfile::TempDir,
        temporary: tempfile::TempDir,
        variables: Vec<(&'static str, String)>,
    }

    impl DiscoveryFixture {
        fn new() -> Self {
            Self {
                runtime: tempfile::tempdir().unwrap(),
                temporary: tempfile::tempdir().unwrap(),
                variables: Vec::new(),
            }
        }

        fn found(&self) -> Result<Option<String>, String> {
            let variable = |name: &str| {
                let own = self.variables.iter().find(|(own, _)| *own == name);
                match own {
                    Some((_, value)) => Some(OsString::from(value)),
                    None if name == "XDG_RUNTIME_DIR" => Some(self.runtime.path().into()),
                    None => None,
                }
            };
            discover_in(variable, uid(), self.temporary.path())
                .map(|found| found.map(|token| token.as_str().to_owned()))
                .map_err(|error| error.to_string())
        }
    }

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn write(dir: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_places_are_searched_in_the_order_of_the_profile() {
        let mut places = DiscoveryFixture::new();
        let well_known = format!("bt_u{}", uid());
        assert_eq!(places.found(), Ok(None));
        write(places.temporary.path(), &well_known, "d.d.d", 0o600);
        assert_eq!(places.found(), Ok(Some("d.d.d".to_owned())));
        write(places.runtime.path(), &well_known, "c.c.c\n", 0o600);
        assert_eq!(places.found(), Ok(Some("c.c.c".to_owned())));
        let named = write(places.runtime.path(), "named", " \tb.b.b \n\n", 0o400);
        let named = named.display().to_string();
        places.variables.push(("BEARER_TOKEN_FILE", named));
        assert_eq!(places.found(), Ok(Some("b.b.b".to_owned())));
        places
            .variables
            .push(("BEARER_TOKEN", " a.a.a\n".to_owned()));
        assert_eq!(places.found(), Ok(Some("a.a.a".to_owned())));
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let mut places = DiscoveryFixture::new();
        places.variables.push(("BEARER_TOKEN", String::new()));
        places.variables.push(("BEARER_TOKEN_FILE", String::new()));
        assert_eq!(places.found(), Ok(None));
    }

    #[test]
    fn a_place_that_is_set_is_never_skipped() {
        let mut places = DiscoveryFixture::new();
        let well_known = format!("bt_u{}", uid());
        write(places.temporary.path(), &well_known, "d.d.d", 0o600);
        places
            .variables
            .push(("BEARER_TOKEN_FILE", "/nowhere".to_owned()));
        assert!(places.found().unwrap_err().contains("no such file"));
        places
            .variables
            .push(("BEARER_TOKEN", "s3cret \u{7f}".to_owned()));
        let error = places.found().unwrap_err();
        assert!(error.contains("BEARER_TOKEN holds no token"), "{error}");
        assert!(!error.contains("s3cret"), "no part of a token in messages");
    }

    #[test]
    fn files_that_others_may_read_or_plant_are_refused() {
        for mode in [0o604, 0o620, 0o601, 0o666] {
            let places = DiscoveryFixture::new();
            write(
                places.temporary.path(),
                &format!("bt_u{}", uid()),
                "a.a.a",
                mode,
            );
            let error = places.found().unwrap_err();
            assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        }
        let places = DiscoveryFixture::new();
        let real = write(places.runtime.path(), "real", "a.a.a", 0o600);
        let link = places.temporary.path().join(format!("bt_u{}", uid()));
        std::os::unix::fs::symlink(real, link).unwrap();
        places.found().unwrap_err();
        let places = DiscoveryFixture::new();
        let path = places.temporary.path().join(format!("bt_u{}", uid()));
        fs::create_dir(path).unwrap();
        assert!(places.found().unwrap_err().contains("regular file"));
    }

    #[test]
    fn a_well_known_file_of_another_user_is_refused() {
        let places = DiscoveryFixture::new();
        let other = uid() + 1;
        write(
            places.temporary.path(),
            &format!("bt_u{other}"),
            "a.a.a",
            0o600,
        );
        let found = discover_in(|_| None, other, places.temporary.path());
        assert!(found.unwrap_err().to_string().contains("belongs to user"));
    }

    #[test]
    fn oversize_and_empty_files_hold_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let largest = "a".repeat(MAX_TOKEN);
        let path = write(dir.path(), "t", &format!("{largest}\n"), 0o600);
        assert_eq!(read_token_file(&path).unwrap().as_str(), largest);
        for content in [" \n", &format!("{largest}a"), "ä", "a\0b", "a\nb"] {
            let path = write(dir.path(), "t", content, 0o600);
            read_token_file(&path).unwrap_err();
        }
        read_token_file(&dir.path().join("none")).unwrap_err();
    }
}
