//! Receipts: signed after a copy, and compared with the files later.
//!
//! ssh-keygen(1) signs and checks: people who have an account have a key for ssh.

use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use copy::{CheckedSum, Failure, FailureKind, ReceiptOutline};

use crate::args::{KeepArgs, VerifyArgs};
use crate::check_sums::{compare, verdict};
use crate::output::print_to_stderr;
use crate::terminal::ask_for_missing;

/// Purpose of the signatures (`-n` of ssh-keygen): one for something else does not count.
const NAMESPACE: &str = "longhaul-receipt";

/// A receipt that is signed when a copy has written it.
pub(crate) struct ReceiptToSign<'a> {
    path: PathBuf,
    key: &'a Path,
    /// The file of that name before the copy: one that stays is of another copy.
    earlier: Option<(u64, u64)>,
}

impl<'a> ReceiptToSign<'a> {
    /// Before a copy: the receipt that its flags ask for, if it is to be signed.
    pub(crate) fn of(keep: &'a KeepArgs) -> Option<Self> {
        let path = keep.receipt()?.path;
        Some(Self {
            earlier: identity(&path),
            path,
            key: keep.receipt_key.as_deref()?,
        })
    }

    /// Before the copy: whether its key is there, so that nobody learns after a day of copying that it is not.
    ///
    /// # Errors
    /// `Usage`: the key cannot be read. `Local`: there is no ssh-keygen.
    pub(crate) fn check_key(&self) -> Result<(), Failure> {
        // With an agent the public key is enough.
        let public = with_suffix(self.key, ".pub");
        let is_public_alone = !self.key.exists() && public.exists();
        let key = if is_public_alone {
            public.as_path()
        } else {
            self.key
        };
        let mut command = Command::new("ssh-keygen");
        command.arg("-l").arg("-f").arg(key).stdin(Stdio::null());
        let output = command.output().map_err(|error| without_keygen(&error))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Failure::usage(format!(
                "no receipt can be signed with --receipt-key: {}",
                last_line(&output)
            ))),
        }
    }

    /// After the copy. Nothing is signed that it has not written.
    ///
    /// # Errors
    /// `Local`: ssh-keygen cannot be run, or refuses the key.
    pub(crate) fn sign(&self) -> Result<(), Failure> {
        let now = identity(&self.path);
        match now.is_none() || now == self.earlier {
            true => Ok(()),
            false => sign(&self.path, self.key),
        }
    }
}

/// Device and inode of a file. A receipt replaces an earlier one, whose inode is in use until then.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn sign(receipt: &Path, key: &Path) -> Result<(), Failure> {
    let signature = signature_of(receipt);
    // ssh-keygen asks before it overwrites one.
    match std::fs::remove_file(&signature) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Failure::local(format!("{}: {error}", signature.display())));
        }
        _ => {}
    }
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "sign", "-n", NAMESPACE, "-f"]);
    command.arg(key).arg(receipt).stdout(Stdio::null());
    // A passphrase is asked for on the terminal.
    let output = command.stderr(Stdio::piped()).output();
    let output = output.map_err(|error| without_keygen(&error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::local(format!(
            "the receipt is written, but not signed: {}",
            last_line(&output)
        ))),
    }
}

/// `longhaul verify`
pub(crate) async fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let of_file = |error: io::Error| {
        let kind = FailureKind::of_named_file(&error);
        Failure::new(kind, format!("{}: {error}", args.receipt.display()))
    };
    let mut file = File::open(&args.receipt).map_err(of_file)?;
    check_signature(args, &file)?;
    file.rewind().map_err(of_file)?;
    let outline = copy::read_receipt(&mut BufReader::new(&file), &args.receipt)?;
    if outline.files == 0 {
        print_to_stderr(&judgement(&outline));
        return Ok(());
    }
    file.rewind().map_err(of_file)?;
    let options = args.common.options()?;
    let base = args.base.clone().unwrap_or_else(|| outline.base.clone());
    ask_for_missing([base.as_str()], &options.security).await;
    let is_left_out = |result: &CheckedSum| !args.verbose && matches!(result, CheckedSum::Matches);
    let mut lines = BufReader::new(file);
    let place = (args.receipt.as_path(), base.as_str());
    let (totals, first_unreadable) =
        compare(&mut lines, place, None, &options, is_left_out).await?;
    verdict(totals, false, first_unreadable)?;
    print_to_stderr(&judgement(&outline));
    Ok(())
}

/// All files of the receipt are right: in words, with those that the copy could not move.
fn judgement(outline: &ReceiptOutline) -> String {
    let mut text = match outline.files {
        0 => "the copy moved no files, so there is nothing to compare".to_owned(),
        1 => "1 file is that of the copy".to_owned(),
        files => format!("{files} files are those of the copy"),
    };
    if outline.failed > 0 {
        text.push_str(&format!(
            "; {} failed then, and are not in the receipt",
            outline.failed
        ));
    }
    text
}

/// Checks the signature beside the receipt, and says whose it is. One that nobody vouches for is no error unless the user says
/// who may sign.
fn check_signature(args: &VerifyArgs, receipt: &File) -> Result<(), Failure> {
    let signature = signature_of(&args.receipt);
    let refused = |why: &str| {
        let message = format!("{}: {why}", args.receipt.display());
        Err(Failure::new(FailureKind::Integrity, message))
    };
    if !signature.exists() {
        return match &args.allowed_signers {
            Some(_) => refused("there is no signature beside it (the same name with .sig)"),
            None => Ok(()),
        };
    }
    let Some(signers) = &args.allowed_signers else {
        let output = keygen(&["check-novalidate"], &signature, receipt, &[])?;
        return match output.status.success() {
            true => {
                let text = String::from_utf8_lossy(&output.stdout);
                print_to_stderr(&format!(
                    "the signature is right; whose key it is, nobody vouches for (--allowed-signers): {}",
                    text.trim()
                ));
                Ok(())
            }
            false => refused("its signature is not of this receipt"),
        };
    };
    // ssh-keygen would say of a missing file what it says of a signature that is not in it.
    File::open(signers).map_err(|error| {
        let kind = FailureKind::of_named_file(&error);
        Failure::new(kind, format!("{}: {error}", signers.display()))
    })?;
    let found = keygen(&["find-principals"], &signature, receipt, &[signers])?;
    let names = String::from_utf8_lossy(&found.stdout).into_owned();
    let Some(name) = names.lines().next().filter(|_| found.status.success()) else {
        return refused("it is signed by none of the allowed signers");
    };
    let checked = keygen(&["verify", "-I", name], &signature, receipt, &[signers])?;
    match checked.status.success() {
        true => {
            print_to_stderr(&format!("signed by {name}"));
            Ok(())
        }
        false => refused("its signature is not of this receipt"),
    }
}

/// Runs `ssh-keygen -Y` with the receipt on its standard input.
fn keygen(
    words: &[&str],
    signature: &Path,
    receipt: &File,
    signers: &[&PathBuf],
) -> Result<Output, Failure> {
    let input = receipt.try_clone().and_then(|mut file| {
        file.rewind()?;
        Ok(file)
    });
    let input = input.map_err(|error| Failure::local(format!("the receipt: {error}")))?;
    let mut command = Command::new("ssh-keygen");
    command.arg("-Y").args(words);
    command
        .args(["-n", NAMESPACE, "-s"])
        .arg(signature)
        .stdin(input);
    for file in signers {
        command.arg("-f").arg(file);
    }
    command.output().map_err(|error| without_keygen(&error))
}

fn without_keygen(error: &io::Error) -> Failure {
    Failure::local(format!("ssh-keygen, which signs receipts: {error}"))
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map_or_else(|| output.status.to_string(), str::to_owned)
}

fn signature_of(receipt: &Path) -> PathBuf {
    with_suffix(receipt, ".sig")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
