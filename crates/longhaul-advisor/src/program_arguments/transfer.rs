//! The transfer in the arguments of a program: the way of its data, and its size where that is a file of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use enable::advice::DataDirection;
use enable::emit::Program;

/// The transfer, as far as the arguments tell of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToldTransfer {
    /// The way of the data.
    pub(crate) direction: DataDirection,
    /// The file that is sent.
    file: Option<PathBuf>,
}

impl ToldTransfer {
    /// The transfer of the arguments of a program; a download, if they do not tell.
    pub(crate) fn of_arguments(program: Program, arguments: &[OsString]) -> Self {
        let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        let sent = match program {
            // curl(1): -T FILE, --upload-file FILE
            Program::Curl => value_of(&words, 'T', "--upload-file").map(Some),
            Program::GlobusUrlCopy => globus_source(&words).map(Some),
            // iperf3(1): the client sends, unless -R (--reverse) or both ends do.
            Program::Iperf3 => {
                let receives = |word: &&str| {
                    matches!(*word, "-R" | "--reverse" | "--bidir" | "-s" | "--server")
                };
                (!words.iter().any(receives)).then_some(None)
            }
            _ => None,
        };
        match sent {
            None => Self::default(),
            Some(file) => Self {
                direction: DataDirection::Upload,
                file: file.map(PathBuf::from),
            },
        }
    }

    /// Size of the file that is sent, bytes; `None`: there is none, or it cannot be looked at.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let found = self.file.as_deref().map(Path::metadata)?.ok()?;
        found.is_file().then_some(found.len())
    }
}

/// The path of the file of this machine that globus-url-copy sends: the first of its last two words is a `file:` URL,
/// and the last one is not.
fn globus_source<'a>(words: &[&'a str]) -> Option<&'a str> {
    let [.., source, destination] = words else {
        return None;
    };
    let path = source.strip_prefix("file://")?;
    let is_remote = !destination.starts_with("file:") && destination.contains("://");
    // file:///PATH and file://localhost/PATH
    let path = path.strip_prefix("localhost").unwrap_or(path);
    is_remote.then_some(path)
}

/// The value of a flag: `-xVALUE`, `-x VALUE`, `--long VALUE` or `--long=VALUE`.
fn value_of<'a>(words: &[&'a str], short: char, long: &str) -> Option<&'a str> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if *word == long {
            return rest.next().copied();
        }
        if let Some(value) = word
            .strip_prefix(long)
            .and_then(|rest| rest.strip_prefix('='))
        {
            return Some(value);
        }
        match word
            .strip_prefix('-')
            .and_then(|rest| rest.strip_prefix(short))
        {
            Some("") => return rest.next().copied(),
            Some(value) => return Some(value),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(program: Program, words: &str) -> ToldTransfer {
        let arguments: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        ToldTransfer::of_arguments(program, &arguments)
    }

    #[test]
    fn what_a_program_sends_is_an_upload() {
        for (program, words, file) in [
            (Program::Curl, "-T a.bin ftp://h/", Some("a.bin")),
            (Program::Curl, "-sTa.bin ftp://h/", None),
            (
                Program::Curl,
                "--upload-file=/x/a https://h/a",
                Some("/x/a"),
            ),
            (
                Program::GlobusUrlCopy,
                "-vb file:///d/x gsiftp://h/x",
                Some("/d/x"),
            ),
            (Program::Iperf3, "-c h", None),
        ] {
            let found = told(program, words);
            assert_eq!(found.file.as_deref(), file.map(Path::new), "{words}");
            let is_upload = found.direction == DataDirection::Upload;
            assert_eq!(is_upload, !words.starts_with("-sT"), "{words}");
        }
    }

    #[test]
    fn all_else_is_a_download_of_unknown_size() {
        for (program, words) in [
            (Program::Curl, "-O ftp://h/T"),
            (Program::GlobusUrlCopy, "gsiftp://h/x file:///d/x"),
            (Program::GlobusUrlCopy, "gsiftp://h/x gsiftp://i/x"),
            (Program::Iperf3, "-R -c h"),
            (Program::Ncftpget, "h . x"),
            (Program::GlobusUrlCopy, ""),
        ] {
            assert_eq!(told(program, words), ToldTransfer::default(), "{words}");
        }
    }

    #[test]
    fn the_size_is_that_of_a_file_alone() {
        let of = |path: &str| told(Program::Curl, &format!("-T {path} ftp://h/")).bytes();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let size = own.metadata().unwrap().len();
        assert_eq!(of(own.to_str().unwrap()), Some(size));
        assert_eq!((of("/"), of("/no/such")), (None, None));
    }
}
