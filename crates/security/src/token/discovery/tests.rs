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
    // Bytes behind the limit are neither dropped nor ignored.
    let behind_blanks = format!("{}{largest}", " ".repeat(2000));
    let before_others = format!("{largest}\n{}b", " ".repeat(2000));
    for content in [
        " \n",
        &format!("{largest}a"),
        &behind_blanks,
        &before_others,
        "ä",
        "a\0b",
        "a\nb",
    ] {
        let path = write(dir.path(), "t", content, 0o600);
        read_token_file(&path).unwrap_err();
    }
    read_token_file(&dir.path().join("none")).unwrap_err();
}
