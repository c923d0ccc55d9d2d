//! Links with nodes: programs, and files in a shared directory. A thread reads and another one writes the lines of each.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use proto::printable::printable;
use tokio::sync::mpsc;

use super::messages::MAX_LINE;
use crate::local::disk::run_blocking;
use crate::options::NodeLink;
use ftp::{Failure, FailureKind};

/// Lines between a thread and who takes or gives them.
const QUEUED_LINES: usize = 64;
/// How often a file is looked at for further lines.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for a program that is to end, and how often it is looked at.
const MAX_ENDING: Duration = Duration::from_millis(500);
const LOOK_FOR_END: Duration = Duration::from_millis(5);
/// Longest words of a program that are shown, bytes.
const MAX_WORDS: usize = 300;

/// The lines of one end of a link.
#[derive(Debug)]
pub struct NodeLines {
    /// Lines for the other end. It cannot be sent to when the link is broken.
    pub(super) to: mpsc::Sender<Vec<u8>>,
    /// Lines of the other end. Ends with the link.
    pub(super) from: mpsc::Receiver<Vec<u8>>,
    writing: JoinHandle<()>,
}

impl NodeLines {
    /// Lines over pipes, as standard input and output are.
    pub fn over(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        let (from_sender, from_receiver) = mpsc::channel(QUEUED_LINES);
        let (to_sender, to_receiver) = mpsc::channel(QUEUED_LINES);
        thread::spawn(move || read_lines(from, &from_sender));
        let writing = thread::spawn(move || write_lines(to, to_receiver));
        Self {
            to: to_sender,
            from: from_receiver,
            writing,
        }
    }

    /// The node's end of a link by files: see [`NodeLink::Files`].
    ///
    /// # Errors
    /// The file of replies cannot be made.
    pub fn of_node(directory: &Path) -> io::Result<Self> {
        let (orders, replies) = files_of(directory);
        Ok(Self::over(
            FollowedFile::new(orders),
            AppendedFile::open(&replies)?,
        ))
    }

    /// Returns when all lines for the other end are written.
    pub(super) async fn ended(self) {
        let Self { to, writing, .. } = self;
        drop(to);
        // The thread ends with the last line.
        let _ = run_blocking(move || {
            let _ = writing.join();
            Ok(())
        })
        .await;
    }

    /// The next line.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.from.recv().await
    }
}

/// Orders and replies, of which each has one writer.
fn files_of(directory: &Path) -> (PathBuf, PathBuf) {
    (directory.join("orders"), directory.join("replies"))
}

/// An open link with a node.
pub(super) struct OpenNodeLink {
    pub(super) lines: NodeLines,
    program: Option<NodeProgram>,
}

/// When it is dropped, it gets the time to remove its unfinished files, and is then killed.
struct NodeProgram {
    child: Child,
    /// Its last words.
    words: Option<JoinHandle<String>>,
}

impl Drop for NodeProgram {
    fn drop(&mut self) {
        // Its input has ended, so it ends by itself.
        let until = Instant::now() + MAX_ENDING;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(LOOK_FOR_END);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OpenNodeLink {
    /// Opens the link.
    ///
    /// # Errors
    /// `Local`: the program cannot be started, or the files cannot be used.
    pub(super) fn open(link: &NodeLink) -> Result<Self, Failure> {
        match link {
            NodeLink::Program(words) => Self::start(words),
            NodeLink::Files(directory) => {
                let (orders, replies) = files_of(directory);
                let to = AppendedFile::open(&orders)
                    .map_err(|error| Failure::about(FailureKind::Local, orders.display(), error))?;
                Ok(Self {
                    lines: NodeLines::over(FollowedFile::new(replies), to),
                    program: None,
                })
            }
        }
    }

    fn start(words: &[std::ffi::OsString]) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::local("a node has no program"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C at the terminal is for this process, which then ends the others.
        command.process_group(0);
        let cannot = |reason: &dyn std::fmt::Display| {
            Failure::local(format!("cannot start {}: {reason}", program.display()))
        };
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut program = NodeProgram { child, words: None };
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(cannot(&"it has no pipes"));
        };
        program.words = Some(thread::spawn(move || last_words(errors)));
        Ok(Self {
            lines: NodeLines::over(output, input),
            program: Some(program),
        })
    }

    /// Why the link has ended, in the words of its program.
    pub(super) async fn reason(self) -> String {
        let Some(mut program) = self.program else {
            return "it does not answer".to_owned();
        };
        let words = run_blocking(move || {
            let _ = program.child.kill();
            let status = program.child.wait();
            let words = program.words.take().and_then(|words| words.join().ok());
            Ok(match (words.filter(|words| !words.is_empty()), status) {
                (Some(words), _) => words,
                (None, Ok(status)) => format!("its program ended ({status})"),
                (None, Err(error)) => format!("its program is lost: {error}"),
            })
        });
        words.await.unwrap_or_else(|failure| failure.to_string())
    }
}

/// The last line that a program writes.
fn last_words(errors: impl Read) -> String {
    let lines = BufReader::new(errors).split(b'\n').map_while(Result::ok);
    let shown = lines.filter_map(|line| {
        let shown = line.get(..MAX_WORDS).unwrap_or(&line).trim_ascii();
        (!shown.is_empty()).then(|| printable(shown).to_string())
    });
    shown.last().unwrap_or_default()
}

/// Passes lines on as they come. One that is too long ends them.
fn read_lines(from: impl Read, to: &mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let read = reader
            .by_ref()
            .take(MAX_LINE as u64)
            .read_until(b'\n', &mut line);
        if read.is_err() || !line.ends_with(b"\n") || to.blocking_send(line).is_err() {
            return;
        }
    }
}

/// Writes lines as they come, until nobody gives any more or nobody takes them.
fn write_lines(mut to: impl Write, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.blocking_recv() {
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// A file that another machine follows: a flush makes it visible there, also over NFS.
struct AppendedFile(File);

impl AppendedFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path);
        file.map(Self)
    }
}

impl Write for AppendedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// A file that grows, and may not exist yet. It never ends, and is opened again for each look, because over NFS only that shows
/// what another machine has written.
struct FollowedFile {
    path: PathBuf,
    read: u64,
}

impl FollowedFile {
    fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }
}

impl Read for FollowedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let look = File::open(&self.path).and_then(|mut file| {
                file.seek(SeekFrom::Start(self.read))?;
                file.read(buffer)
            });
            match look {
                Ok(count @ 1..) => {
                    self.read += count as u64;
                    return Ok(count);
                }
                Ok(0) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // ESTALE of an NFS client, for instance: the next look may find it.
                Err(error) => tracing::debug!(%error, "the file of a node cannot be read"),
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_pass_through_files_in_both_directions() {
        let folder = tempfile::tempdir().unwrap();
        let link = NodeLink::Files(folder.path().to_owned());
        let mut ours = OpenNodeLink::open(&link).unwrap().lines;
        let mut theirs = NodeLines::of_node(folder.path()).unwrap();
        for text in ["one\n", "two\n"] {
            ours.to.send(text.into()).await.unwrap();
            assert_eq!(theirs.next().await.unwrap(), text.as_bytes());
            theirs.to.send(text.into()).await.unwrap();
            assert_eq!(ours.next().await.unwrap(), text.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_leaves_its_last_words() {
        let words = ["sh", "-c", "echo first >&2; echo why >&2"].map(Into::into);
        let link = NodeLink::Program(words.to_vec());
        let mut connection = OpenNodeLink::open(&link).unwrap();
        assert!(connection.lines.next().await.is_none());
        assert_eq!(connection.reason().await, "why");
    }
}
