//! Puts this version of longhaul into the user's cache directory at a far end that has none, and removes it.
//!
//! Layout below `${XDG_CACHE_HOME:-$HOME/.cache}/longhaul`: `VERSION-SYSTEM-MACHINE-DIGEST/longhaul`, and `new-NONCE/longhaul` while one arrives.
//! The far end runs a script that comes through its input, since the limits of login shells do not hold there.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use data::os::random;
use data::transport::ControlTransport;
use proto::printable::printable;
use tokio::time::timeout;

use super::far_end::{self, FarPlatform, FarProgram};
use super::program_file::{self, ProgramFile};
use super::{QUESTION_TIME, SshChannel, SshEnd, answer};
use crate::{Failure, FailureKind};

/// The beginning of the lines of the scripts.
const SAYS: &str = "longhaul install 1 ";

/// Hex digits of a digest in the name of a directory: enough to tell programs apart. All of them are checked.
const DIGEST_IN_NAME: usize = 16;

/// Most directories that one cleanup is about.
const MAX_DIRECTORIES: usize = 10_000;

/// Bytes of the program that are sent at a time.
const PIECE: usize = 64 << 10;

/// The beginning of both scripts: where they work, and how they answer. A name without a directory is that of a link.
const PLACE: &str = r#"
say() { echo; echo "longhaul install 1 $*"; }
umask 077
d="${XDG_CACHE_HOME:-$HOME/.cache}/longhaul"
if test -h "$d"; then say link "$d"; exit 1; fi
"#;

/// Receives a program of this name ($v), number ($n), digest ($h) and version ($V).
const RECEIVE: &str = r#"
t="$d/new-$n"
p="$d/$v"
has() { command -v "$1" >/dev/null 2>&1; }
if has sha256sum; then sum() { sha256sum; }
elif has shasum; then sum() { shasum -a 256; }
elif has openssl; then sum() { openssl dgst -sha256; }
else say no-digest; exit 1; fi
mkdir -p "$d" && chmod 700 "$d" && mkdir "$t" || { say no-directory "$d"; exit 1; }
trap 'rm -f "$t/longhaul"; rmdir "$t" 2>/dev/null' 0
trap 'exit 1' 1 2 13 15
say ready
cat >"$t/longhaul" || { say not-written "$d"; exit 1; }
case "$(sum <"$t/longhaul")" in *"$h"*) ;; *) say other-bytes "$d"; exit 1;; esac
chmod 700 "$t/longhaul"
r=$("$t/longhaul" --version </dev/null 2>/dev/null)
case "$r" in
"longhaul $V") ;;
"longhaul "*) say other-version "$r"; exit 1;;
*) say cannot-run "$d"; exit 1;; esac
test -e "$p" || test -h "$p" || mv "$t" "$p"
if test -d "$p/new-$n"; then rm -f "$p/new-$n/longhaul"; rmdir "$p/new-$n"; fi
test -e "$p" || { say not-written "$d"; exit 1; }
case "$(sum <"$p/longhaul")" in *"$h"*) say done;; *) say occupied "$p"; exit 1;; esac
"#;

/// Removes all that is of the layout. Each directory is entered, so that no name leads elsewhere.
const REMOVE: &str = r#"
x='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
b=$(cd -P "$d" 2>/dev/null && pwd -P) || { say end; exit 0; }
cd "$b" || exit 1
for v in [0-9]*-*-*-$x$x$x$x new-$x$x$x$x; do
test -d "$v" || test -h "$v" || continue
if test -h "$v" || test -h "$v/longhaul"; then say kept "$b/$v"; continue; fi
(cd -P "./$v" && test "$(pwd -P)" = "$b/$v" && rm -f longhaul) 2>/dev/null
if rmdir "$v" 2>/dev/null; then say removed "$b/$v"; else say kept "$b/$v"; fi
done
cd / && rmdir "$b" 2>/dev/null
say end
"#;

/// Whether longhaul may be put into the user's cache directory at a far end that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InstallChoice {
    /// No.
    #[default]
    Never,
    /// After a question at the terminal; without a terminal no.
    Ask,
    /// Yes.
    Always,
}

/// The user's choices about the program at the far end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FarEndOptions {
    /// `--ssh-program`: the program there, which is not searched for.
    pub program: Option<FarProgram>,
    /// `--ssh-install`
    pub install: InstallChoice,
    /// `--ssh-helper`: the file that may be put there.
    pub helper: Option<PathBuf>,
}

/// The directories of longhaul's programs at a far end, as it names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FarEndCleanup {
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Links, and directories with other files in them.
    pub kept: Vec<String>,
}

/// An answer of a script: a word, and the rest.
struct ScriptAnswer(String, String);

impl ScriptAnswer {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let words = line.trim_end_matches('\r').strip_prefix(SAYS)?;
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        Some(Self(word.to_owned(), printable(rest).to_string()))
    }
}

/// The end of an attempt to put one program there.
enum Attempt {
    Done,
    /// The far end cannot run it. Another one may run.
    CannotRun(Failure),
}

/// A program that runs a script there.
struct FarScript {
    channel: SshChannel,
    transport: ControlTransport,
}

impl FarScript {
    async fn start(end: &SshEnd<'_>, script: &str) -> Result<Self, Failure> {
        let channel = end.open_shared(far_end::loader(script.len())).await?;
        let mut transport = ControlTransport::carried(channel.stream()?);
        // An error is seen by the lack of an answer.
        let _ = transport.write_all(script.as_bytes()).await;
        Ok(Self { channel, transport })
    }

    async fn answer(&mut self) -> Option<ScriptAnswer> {
        let patience = self.channel.patience().max(QUESTION_TIME);
        let answer = timeout(patience, answer(&mut self.transport, ScriptAnswer::parse));
        answer.await.ok()?
    }
}

/// Puts longhaul there if the user wants it, which is asked once.
///
/// # Errors
/// `NoProgram`: it may not be put there, or cannot be.
pub(super) async fn provide(
    end: &SshEnd<'_>,
    options: &FarEndOptions,
    platform: &FarPlatform,
) -> Result<(), Failure> {
    let host = end.host().await?;
    // Sessions that begin meanwhile share the answer.
    let mut known = host.installation.lock().await;
    if let Some(result) = &*known {
        return result.clone();
    }
    let result = install(end, options, platform).await;
    // Another session tries again what may succeed then.
    if !result.as_ref().is_err_and(Failure::may_retry) {
        *known = Some(result.clone());
    }
    result
}

async fn install(
    end: &SshEnd<'_>,
    options: &FarEndOptions,
    platform: &FarPlatform,
) -> Result<(), Failure> {
    let absent = format!("there is no longhaul at {}", end.target);
    let absent = |reason: &str| Failure::new(FailureKind::NoProgram, format!("{absent}{reason}"));
    let terminal = match options.install {
        InstallChoice::Always => None,
        InstallChoice::Ask => open_terminal(),
        InstallChoice::Never => return Err(absent("").advise("install it there (docs/install.md)")),
    };
    if options.install == InstallChoice::Ask && terminal.is_none() {
        return Err(absent("").advise(
            "install it there, for example in ~/.local/bin, or let --ssh-install put it into ~/.cache/longhaul there",
        ));
    }
    let candidates = program_file::candidates(options.helper.as_deref(), platform)?;
    let Some(first) = candidates.first() else {
        return Err(absent(&format!(", and no program for {platform} here"))
            .advise("name one with --ssh-helper FILE (docs/install.md: the static binaries)"));
    };
    if let Some(terminal) = terminal {
        let question = format!(
            "{} has no longhaul: put this version ({} MB) into ~/.cache/longhaul there? [y/N] ",
            end.target,
            first.bytes.div_ceil(1_000_000)
        );
        let asked = tokio::task::spawn_blocking(move || ask(terminal, &question));
        if !asked.await.unwrap_or_default() {
            return Err(absent("").advise("install it there (docs/install.md)"));
        }
    }
    let mut last = None;
    for candidate in candidates {
        match put(end, candidate, platform).await? {
            Attempt::Done => return Ok(()),
            Attempt::CannotRun(failure) => last = Some(failure),
        }
    }
    Err(last.unwrap_or_else(|| absent("")))
}

/// Puts one program there.
async fn put(
    end: &SshEnd<'_>,
    mut helper: ProgramFile,
    platform: &FarPlatform,
) -> Result<Attempt, Failure> {
    let shown = helper.path.display().to_string();
    let unread = |error: std::io::Error| Failure::about(FailureKind::Local, &shown, &error);
    let digest = helper.digest().map_err(unread)?;
    let script = receiving_script(platform, &digest, &nonce().map_err(unread)?);
    let mut script = FarScript::start(end, &script).await?;
    let mut answer = script.answer().await;
    if matches!(&answer, Some(ScriptAnswer(word, _)) if word == "ready") {
        let mut piece = vec![0; PIECE];
        loop {
            let count = helper.file.read(&mut piece).map_err(unread)?;
            // A far end that stops reading says why, or nothing for so long.
            let sent = timeout(
                end.reply_timeout,
                script.transport.write_all(&piece[..count]),
            );
            match sent.await {
                Ok(Ok(())) if count > 0 => {}
                Ok(_) => break,
                Err(_) => return Err(script.channel.silence()),
            }
        }
        let _ = script.transport.shutdown().await;
        answer = script.answer().await;
    }
    let Some(ScriptAnswer(word, rest)) = answer else {
        return Err(script.channel.failure().await);
    };
    let last = match word.as_str() {
        "done" => return Ok(Attempt::Done),
        _ => script.channel.last_words().await,
    };
    refusal(end, &word, &rest, &last, &shown)
}

/// The meaning of an answer other than `done`; `last` is the last line on standard error, `helper` the name of the file here.
fn refusal(
    end: &SshEnd<'_>,
    word: &str,
    rest: &str,
    last: &str,
    helper: &str,
) -> Result<Attempt, Failure> {
    let elsewhere = "set XDG_CACHE_HOME there to a directory that can be used, or install longhaul there and name it with \
                     --ssh-program";
    let (reason, advice) = match word {
        "no-digest" => (
            "it has none of sha256sum, shasum and openssl to check the program before it runs"
                .to_owned(),
            "install longhaul there, for example in ~/.local/bin",
        ),
        "link" => (format!("{rest} is a link"), elsewhere),
        "no-directory" => (format!("{rest} cannot be used: {last}"), elsewhere),
        "not-written" => (format!("writing to {rest} failed: {last}"), elsewhere),
        "other-bytes" => (
            format!("the bytes in {rest} are not those that were sent, and were not run"),
            "try again; a full disk or quota there does this, too",
        ),
        "other-version" => (
            format!("{helper} is {rest}, and not longhaul {}", far_end::VERSION),
            "give a program of this version with --ssh-helper",
        ),
        "cannot-run" => (
            format!("it cannot run {helper} from {rest}"),
            "if that is mounted noexec, set XDG_CACHE_HOME there or use --ssh-program; otherwise give a static program \
             with --ssh-helper",
        ),
        "occupied" => (
            format!("something else is at {rest}"),
            "remove it: `longhaul ssh clean` does, if it is a damaged program of longhaul",
        ),
        _ => ("its answer is not understood".to_owned(), elsewhere),
    };
    let text = format!("longhaul cannot be put at {}: {reason}", end.target);
    let failure = Failure::new(FailureKind::NoProgram, text).advise(advice);
    match word {
        "cannot-run" => Ok(Attempt::CannotRun(failure)),
        _ => Err(failure),
    }
}

/// The script that receives a program with this digest.
fn receiving_script(platform: &FarPlatform, digest: &str, nonce: &str) -> String {
    let name = format!(
        "{}{}",
        platform.directory_prefix(),
        &digest[..DIGEST_IN_NAME]
    );
    let version = far_end::VERSION;
    format!("v={name} n={nonce} h={digest} V={version}{PLACE}{RECEIVE}")
}

/// Removes longhaul's programs from the cache directory there.
///
/// # Errors
/// As [`SshChannel::open`] and [`SshChannel::failure`]. `Refused`: the directory is a link.
pub(crate) async fn clean(end: &SshEnd<'_>) -> Result<FarEndCleanup, Failure> {
    let mut script = FarScript::start(end, &format!("{PLACE}{REMOVE}")).await?;
    let mut cleanup = FarEndCleanup::default();
    for _ in 0..MAX_DIRECTORIES {
        let Some(ScriptAnswer(word, place)) = script.answer().await else {
            return Err(script.channel.failure().await);
        };
        match word.as_str() {
            "removed" => cleanup.removed.push(place),
            "kept" => cleanup.kept.push(place),
            "end" => return Ok(cleanup),
            "link" => {
                let text = format!("{place} at {} is a link, which is not followed", end.target);
                return Err(Failure::refused(text));
            }
            _ => break,
        }
    }
    Err(Failure::protocol(format!(
        "the answers of {} make no sense",
        end.target
    )))
}

/// A number that nobody guesses, in hex.
fn nonce() -> std::io::Result<String> {
    let mut bytes = [0; DIGEST_IN_NAME / 2];
    random::fill(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// The terminal of a process that may read from it now, and whose messages go there.
fn open_terminal() -> Option<File> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let terminal = terminal.ok()?;
    // The system stops a process in the background that reads from its terminal.
    let in_front = rustix::termios::tcgetpgrp(&terminal).ok()?;
    (in_front == rustix::process::getpgrp()).then_some(terminal)
}

/// Asks a question at a terminal. All answers but yes mean no.
fn ask(mut terminal: File, question: &str) -> bool {
    let asked = terminal.write_all(question.as_bytes());
    let mut line = [0; 64];
    match asked.and_then(|()| terminal.read(&mut line)) {
        Ok(count) => matches!(line[..count].trim_ascii(), b"y" | b"Y" | b"yes" | b"Yes"),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_line_of_its_own() {
        let parsed = ScriptAnswer::parse(b"longhaul install 1 kept /home/a b/\x1b[m\r").unwrap();
        assert_eq!(parsed.0, "kept");
        assert!(parsed.1.starts_with("/home/a b/") && !parsed.1.contains('\x1b'));
        assert!(ScriptAnswer::parse(b"Welcome: longhaul install 1 done").is_none());
    }

    #[test]
    fn the_scripts_have_no_word_of_a_far_end_in_them() {
        let platform = FarPlatform::parse(b"longhaul absent 1 Linux x86_64").unwrap();
        let script = receiving_script(&platform, &"ab".repeat(32), &nonce().unwrap());
        assert!(script.starts_with(&format!(
            "v={}-Linux-x86_64-abababababababab n=",
            far_end::VERSION
        )));
    }
}
