//! `longhaul serve --import`: settings of another server as a settings file.

use std::io;
use std::path::Path;

use copy::Exit;
use server::config::{ForeignServer, import_settings};
use smallfile::regular_file;

use crate::output::{print_line, print_to_stderr, unless_reader_gone};

/// Largest file of another server, bytes.
const MAX_FILE: u64 = 4 << 20;

/// Prints the translation of a file, or of a directory with one file per directive, and returns the exit code.
pub(crate) fn import(path: &Path, server: Option<ForeignServer>) -> Exit {
    let failed = |reason: &str| {
        print_to_stderr(&format!(
            "longhaul serve: cannot translate {}: {reason}",
            path.display()
        ));
        Exit::Usage
    };
    match translated(path, server) {
        Ok(settings) => match unless_reader_gone(print_line(settings.trim_end())) {
            Ok(()) => Exit::Done,
            Err(error) => failed(&error.to_string()),
        },
        Err(error) => failed(&error.to_string()),
    }
}

fn translated(path: &Path, server: Option<ForeignServer>) -> io::Result<String> {
    if !path.is_dir() {
        let text = read_file(path)?;
        return import_settings(&text, &path.display().to_string(), server)
            .map_err(io::Error::other);
    }
    // The directories of others have whole files with settings.
    if server.is_some_and(|server| server != ForeignServer::PureFtpd) {
        return Err(io::Error::other(
            "it is a directory: translate its files one by one",
        ));
    }
    // Debian's /etc/pure-ftpd has the directory with the settings.
    let below = path.join("conf");
    let directory = if below.is_dir() { &below } else { path };
    let source = directory.display().to_string();
    ForeignServer::import_files(&read_directory(directory)?, &source, server)
        .map_err(io::Error::other)
}

/// Comments of old files are in any encoding.
fn read_file(path: &Path) -> io::Result<String> {
    let mut content = Vec::new();
    regular_file::read(regular_file::open(path)?, MAX_FILE, &mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The files of a directory with their content, in the order of the names. Debian's pure-ftpd-wrapper(8) reads files with such
/// names, and no others.
fn read_directory(path: &Path) -> io::Result<Vec<(String, String)>> {
    let entries: io::Result<Vec<_>> = std::fs::read_dir(path)?.collect();
    let names = entries?.into_iter().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.bytes().all(|letter| letter.is_ascii_alphanumeric()));
    names.sort();
    let read = |name: String| {
        let content = read_file(&path.join(&name))?;
        Ok((name, content))
    };
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its files have names that those of Pure-FTPd do not have, and would be left out.
    #[test]
    fn a_directory_of_another_server_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("site.conf"), "Umask 027\n").unwrap();
        std::fs::write(folder.path().join("NoAnonymous"), "yes\n").unwrap();
        let error = translated(folder.path(), Some(ForeignServer::Proftpd)).unwrap_err();
        assert!(error.to_string().contains("one by one"), "{error}");
        let files = read_directory(folder.path()).unwrap();
        assert_eq!(files, [("NoAnonymous".to_owned(), "yes\n".to_owned())]);
    }

    #[test]
    fn the_directory_above_that_of_pure_ftpd_will_do() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("conf");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("MinUID"), "500\n").unwrap();
        std::fs::write(below.join("ForcePassiveIP"), "").unwrap();
        let settings = translated(folder.path(), None).unwrap();
        assert!(settings.contains("# file MinUID: 500\n"), "{settings}");
        assert!(
            settings.contains("file ForcePassiveIP: (empty)"),
            "{settings}"
        );
    }
}
