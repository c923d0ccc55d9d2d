//! `longhaul user`: asks for passwords. The server library reads and writes the password file.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use copy::Exit;
use proto::path::VPath;
use proto::server::AccountRights;
use server::users::{self, UserAccount};

use crate::args::{UserArgs, UserVerb};
use crate::output::{print_line, print_to_stderr};

/// Minimum length of a password, bytes.
const MIN_PASSWORD: usize = 8;

/// Runs the verb.
///
/// # Errors
/// The password file, the terminal or a path cannot be used.
pub(crate) fn run(args: UserArgs) -> Result<Exit> {
    match args.verb {
        UserVerb::Add {
            users,
            root,
            read_only,
            no_third_party,
            home,
            password_stdin,
            name,
        } => {
            let rights = AccountRights {
                write: !read_only,
                third_party: !no_third_party,
            };
            let home = VPath::root()
                .resolve(home.as_bytes())
                .with_context(|| format!("--home {home} is not a valid path"))?;
            // Checked before the password is asked for, so that a typo costs no second prompt.
            let root = root.as_deref().map(existing_directory).transpose()?;
            let password = if password_stdin {
                password_from_stdin()?
            } else {
                ask_password(&name)?
            };
            if password.len() < MIN_PASSWORD {
                print_to_stderr(&format!(
                    "longhaul: a password needs at least {MIN_PASSWORD} characters"
                ));
                return Ok(Exit::Usage);
            }
            let replaced = users::add(
                &users,
                &UserAccount {
                    name: name.clone(),
                    root,
                    rights,
                    home,
                },
                password.as_bytes(),
            )?;
            let what = if replaced { "replaced" } else { "added" };
            print_to_stderr(&format!("{what} {name} in {}", users.display()));
            Ok(Exit::Done)
        }
        UserVerb::List { users } => list(&users).map(|()| Exit::Done),
        UserVerb::Remove { users, name } => {
            if !users::remove(&users, &name)? {
                bail!("{} has no user {name}", users.display());
            }
            print_to_stderr(&format!("removed {name} from {}", users.display()));
            Ok(Exit::Done)
        }
    }
}

fn list(path: &Path) -> Result<()> {
    for account in users::list(path)? {
        let rights = match (account.rights.write, account.rights.third_party) {
            (true, true) => "read-write third-party",
            (true, false) => "read-write",
            (false, true) => "read-only third-party",
            (false, false) => "read-only",
        };
        let root = account
            .root
            .map_or_else(|| "(server's root)".into(), |r| r.display().to_string());
        if print_line(&format!(
            "{}\t{rights}\t{root}\t{}",
            account.name, account.home
        ))
        .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// The absolute path of a directory. The server resolves relative roots from its own working directory.
fn existing_directory(path: &Path) -> Result<PathBuf> {
    let absolute = path
        .canonicalize()
        .with_context(|| format!("cannot use --root {}", path.display()))?;
    if !absolute.is_dir() {
        bail!("--root {} is not a directory", absolute.display());
    }
    Ok(absolute)
}

fn password_from_stdin() -> Result<String> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the password")?;
    // Only the line end is removed: spaces may be part of the password.
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn ask_password(name: &str) -> Result<String> {
    // Without a terminal the prompt would read from /dev/tty and block a script.
    if !std::io::stdin().is_terminal() {
        bail!("cannot ask for the password without a terminal; use --password-stdin");
    }
    let first = rpassword::prompt_password(format!("password for {name}: "))?;
    let again = rpassword::prompt_password("again: ")?;
    if first != again {
        bail!("the two passwords differ; try again");
    }
    Ok(first)
}
