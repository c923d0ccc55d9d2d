//! `longhaul proxy`: asks for passphrases and prints; the crate `ftp` makes and reads proxies.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use copy::{Exit, Failure};
use ftp::protection::{
    NewProxy, ProxyFacts, default_proxy_path, describe_proxy, destroy_proxy, make_proxy,
};
use serde_json::json;
use zeroize::Zeroizing;

use crate::args::{ProxyArgs, ProxyVerb};
use crate::output::{ignore_broken_pipe, print_json, print_line, print_to_stderr};

pub(crate) fn run(args: &ProxyArgs) -> Exit {
    let result = match &args.verb {
        ProxyVerb::Init {
            valid,
            limited,
            path_length,
            bits,
            cert,
            key,
            file,
        } => init(&NewProxy {
            file: path_or_default(file.as_ref()),
            certificate: cert.clone(),
            key: key.clone(),
            valid: *valid,
            limited: *limited,
            path_length: *path_length,
            key_bits: *bits,
        }),
        ProxyVerb::Info { file, json } => info(&path_or_default(file.as_ref()), *json),
        ProxyVerb::Destroy { file } => destroy(&path_or_default(file.as_ref())),
    };
    result.unwrap_or_else(|failure| {
        print_to_stderr(&format!("longhaul: {failure}"));
        failure.exit()
    })
}

fn path_or_default(file: Option<&PathBuf>) -> PathBuf {
    file.cloned().unwrap_or_else(default_proxy_path)
}

fn init(new: &NewProxy) -> Result<Exit, Failure> {
    let made = make_proxy(new, &ask_passphrase)?;
    print_to_stderr(&format!(
        "{} for {} in {}, valid until {}",
        made.kind,
        made.identity,
        new.file.display(),
        made.expires_text()
    ));
    Ok(Exit::Done)
}

fn ask_passphrase(key: &Path) -> io::Result<Zeroizing<String>> {
    // Without a terminal the prompt would read from /dev/tty and block a script.
    if !io::stdin().is_terminal() {
        return Err(io::Error::other("standard input is no terminal"));
    }
    rpassword::prompt_password(format!("passphrase of {}: ", key.display())).map(Zeroizing::new)
}

fn info(path: &Path, as_json: bool) -> Result<Exit, Failure> {
    let facts = describe_proxy(path)?;
    let left = facts.time_left();
    let printed = match as_json {
        true => print_json(&facts_to_json(path, &facts)),
        false => facts_lines(path, &facts)
            .iter()
            .try_for_each(|line| print_line(line)),
    };
    ignore_broken_pipe(printed)?;
    if left.is_zero() {
        let advice = "make a new one with `longhaul proxy init`";
        return Err(Failure::refused(format!(
            "the proxy {} has expired: {advice}",
            path.display()
        )));
    }
    Ok(Exit::Done)
}

fn facts_lines(path: &Path, facts: &ProxyFacts) -> Vec<String> {
    let left = facts.time_left().as_secs();
    let (hours, minutes) = (left / 3600, left / 60 % 60);
    [
        ("subject", facts.subject.clone()),
        ("issuer", facts.issuer.clone()),
        ("identity", facts.identity.clone()),
        ("type", facts.kind.to_owned()),
        ("strength", facts.strength.clone()),
        ("path", path.display().to_string()),
        ("expires", facts.expires_text()),
        ("time left", format!("{hours} h {minutes} min")),
    ]
    .map(|(name, value)| format!("{name:10}{}", proto::printable::printable(&value)))
    .to_vec()
}

fn facts_to_json(path: &Path, facts: &ProxyFacts) -> serde_json::Value {
    json!({
        "subject": facts.subject,
        "issuer": facts.issuer,
        "identity": facts.identity,
        "type": facts.kind,
        "strength": facts.strength,
        "path": path.display().to_string(),
        "expires": facts.expires_text(),
        "seconds_left": facts.time_left().as_secs(),
    })
}

fn destroy(path: &Path) -> Result<Exit, Failure> {
    destroy_proxy(path)?;
    print_to_stderr(&format!("removed {}", path.display()));
    Ok(Exit::Done)
}
