use std::os::unix::fs::PermissionsExt;

use super::*;

fn read(text: &str, mode: u32) -> Result<Secret, CopyFailure> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    read_token_file(&path)
}

#[test]
fn a_token_file_is_read_without_its_line_end() {
    assert_eq!(
        read("eyJ.abc-_=\n", 0o600).unwrap(),
        Secret::from("eyJ.abc-_=")
    );
}

#[test]
fn a_token_that_others_may_read_or_that_is_malformed_is_refused_without_being_shown() {
    for (text, mode, word) in [
        ("s3cret", 0o644, "chmod 600"),
        ("s3cret s3cret", 0o600, "RFC 6750"),
        ("s3cret\r\nDELE /x", 0o600, "RFC 6750"),
        ("s3cret", 0o640, "chmod 600"),
        ("", 0o600, "empty"),
    ] {
        let failure = read(text, mode).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains(word), "{failure}");
        assert!(!failure.message.contains("s3cret"), "{failure}");
    }
    let missing = read_token_file(Path::new("/nonexistent/token")).unwrap_err();
    assert!(missing.message.contains("/nonexistent/token"));
}

#[test]
fn a_token_file_that_is_no_regular_file_is_refused_and_never_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = crate::test_files::make_pipe(dir.path());
    for special in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
        let failure = read_token_file(special).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains("not a regular file"), "{failure}");
    }
}
