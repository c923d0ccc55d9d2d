//! Where the configuration files are.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use copy::{Failure, FailureKind};
use smallfile::regular_file;
use zeroize::Zeroizing;

use super::environment::CONFIG;
use super::file::ConfigurationFile;

/// The file of the whole machine.
const OF_MACHINE: &str = "/etc/longhaul/config.toml";

/// Longest configuration file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads the files that count, the more important first: the one of `--config`, else of LONGHAUL_CONFIG, else the
/// user's and the machine's.
///
/// # Errors
/// `NotFound`: a named file is missing. `Refused`: a file with a secret is readable by others. `Usage`: a file
/// has a mistake. `Local`: it cannot be read.
pub(super) fn read_all(flag: Option<&OsStr>) -> Result<Vec<ConfigurationFile>, Failure> {
    let variable = std::env::var_os(CONFIG).filter(|value| !value.is_empty());
    match flag.or(variable.as_deref()) {
        Some(named) if named == "off" => Ok(Vec::new()),
        Some(named) => match read(Path::new(named))? {
            Some(file) => Ok(vec![file]),
            None => {
                let message = format!("there is no configuration file {}", named.display());
                Err(Failure::new(FailureKind::NotFound, message))
            }
        },
        None => {
            let files = usual_places().into_iter().map(|path| read(&path));
            files.filter_map(Result::transpose).collect()
        }
    }
}

/// The user's file and the machine's. They need not exist.
pub(super) fn usual_places() -> Vec<PathBuf> {
    let directory = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    // XDG Base Directory Specification: a relative path is ignored.
    let directory = directory
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".config")));
    let of_user = directory.map(|directory| directory.join("longhaul/config.toml"));
    of_user
        .into_iter()
        .chain([PathBuf::from(OF_MACHINE)])
        .collect()
}

fn read(path: &Path) -> Result<Option<ConfigurationFile>, Failure> {
    let name = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::local(format!("cannot read the configuration {name}: {error}"))
    };
    let opened = match regular_file::open(path) {
        Ok(opened) => opened,
        // A parent that is no directory holds no file either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let exposure = ftp::exposure_of_file(&opened.1, path);
    let writers = ftp::writers_of_file(&opened.1, path);
    let mut bytes = Zeroizing::new(Vec::new());
    regular_file::read(opened, MAX_FILE, &mut bytes).map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Failure::usage(format!("{name} is not UTF-8 text")))?;
    let file = ConfigurationFile::parse(path, text)
        .map_err(|mistakes| Failure::usage(mistakes.join("\nlonghaul: ")))?;
    let refused = |line: usize, content: &str, reason: String| {
        Err(Failure::refused(format!(
            "{name}:{line} has a {content}, and {reason}"
        )))
    };
    if let (Some(exposure), Some(line)) = (exposure, file.secret_line()) {
        return refused(line, "password", exposure);
    }
    // Who writes it runs programs as this user.
    if let (Some(writers), Some(line)) = (writers, file.line_of("password-command")) {
        return refused(line, "password-command", writers);
    }
    Ok(Some(file))
}
