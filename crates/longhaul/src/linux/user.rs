//! `longhaul user`: asks for passwords. The server library reads and writes the password file.

use std::io::{BufRead, IsTerminal};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use copy::Exit;
use data::os::privilege;
use proto::path::VPath;
use proto::server::AccountRights;
use server::users::{self, AccountChange, UserAccount, UsersError};
use smallfile::regular_file;

use crate::args::{UserArgs, UserVerb};
use crate::output::{print_line, print_to_stderr, unless_reader_gone};

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
            run_as,
            password_stdin,
            name,
        } => {
            let rights = AccountRights {
                write: !read_only,
                third_party: !no_third_party,
            };
            // Checked before the password is asked for, so that a typo costs no second prompt.
            let home = home_path(&home)?;
            let owner = run_as.as_deref().map(ids_of).transpose()?;
            let root = root.as_deref().map(existing_directory).transpose()?;
            match users::check_new(&users, &name) {
                Err(refused @ (UsersError::Taken { .. } | UsersError::Anonymous { .. })) => {
                    print_to_stderr(&format!("longhaul: {refused}"));
                    return Ok(Exit::Usage);
                }
                checked => checked?,
            }
            let Some(password) = new_password(&name, password_stdin)? else {
                return Ok(Exit::Usage);
            };
            let account = UserAccount {
                name,
                root,
                rights,
                home,
            };
            users::add(&users, &account, password.as_bytes())?;
            print_to_stderr(&format!("added {} to {}", account.name, users.display()));
            match owner {
                Some(owner) => give_to(&users, owner)?,
                None => warn_if_roots(&users),
            }
            Ok(Exit::Done)
        }
        UserVerb::Change {
            users,
            password,
            password_stdin,
            root,
            server_root,
            read_only,
            read_write,
            no_third_party,
            third_party,
            home,
            name,
        } => {
            let root = root.as_deref().map(existing_directory).transpose()?;
            let mut change = AccountChange {
                password: None,
                root: root.map(Some).or(server_root.then_some(None)),
                write: chosen(read_write, read_only),
                third_party: chosen(third_party, no_third_party),
                home: home.as_deref().map(home_path).transpose()?,
            };
            if password || password_stdin {
                if !users::has_account(&users, &name)? {
                    return Ok(no_such_user(&users, &name));
                }
                let Some(password) = new_password(&name, password_stdin)? else {
                    return Ok(Exit::Usage);
                };
                change.password = Some(password.into_bytes());
            }
            if !users::change(&users, &name, &change)? {
                return Ok(no_such_user(&users, &name));
            }
            print_to_stderr(&format!("changed {name} in {}", users.display()));
            warn_if_roots(&users);
            Ok(Exit::Done)
        }
        UserVerb::List { users } => list(&users).map(|()| Exit::Done),
        UserVerb::Remove { users, name } => {
            if !users::remove(&users, &name)? {
                return Ok(no_such_user(&users, &name));
            }
            print_to_stderr(&format!("removed {name} from {}", users.display()));
            Ok(Exit::Done)
        }
    }
}

/// Says that the file has no such user.
fn no_such_user(users: &Path, name: &str) -> Exit {
    print_to_stderr(&format!("longhaul: {} has no user {name}", users.display()));
    Exit::NotFound
}

/// The value of two flags that exclude each other; `None`: neither was given.
fn chosen(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

fn home_path(home: &str) -> Result<VPath> {
    VPath::root()
        .resolve(home.as_bytes())
        .with_context(|| format!("--home {home} is not a valid path"))
}

/// A password from standard input or the terminal; `None`: it is too short, as a message says.
fn new_password(name: &str, from_stdin: bool) -> Result<Option<String>> {
    let password = match from_stdin {
        true => password_from_stdin()?,
        false => ask_password(name)?,
    };
    if password.len() < MIN_PASSWORD {
        print_to_stderr(&format!(
            "longhaul: a password needs at least {MIN_PASSWORD} characters"
        ));
        return Ok(None);
    }
    Ok(Some(password))
}

/// User and group of an account.
fn ids_of(account: &str) -> Result<(u32, u32)> {
    let account = privilege::account(account)?;
    Ok((account.uid.as_raw(), account.gid.as_raw()))
}

/// Gives the password file to an account. A link that somebody has put in its place is not followed.
fn give_to(users: &Path, (user, group): (u32, u32)) -> Result<()> {
    let given = || {
        let (file, _) = regular_file::open_no_link(users)?;
        fchown(&file, Some(user), Some(group))
    };
    given().with_context(|| format!("cannot change the owner of {}", users.display()))
}

/// Says what a password file of root means: a server that gave up root cannot read it.
fn warn_if_roots(users: &Path) {
    if users.metadata().is_ok_and(|file| file.uid() == 0) {
        print_to_stderr(&format!(
            "longhaul: {} belongs to root, so a server with run-as reads it at its start only; to have changes noticed, \
             give it to that account: chown ACCOUNT {0}, or --run-as ACCOUNT here",
            users.display()
        ));
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
        let line = format!("{}\t{rights}\t{root}\t{}", account.name, account.home);
        unless_reader_gone(print_line(&line)).context("standard output")?;
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
