//! The sections `[remote.NAME]` as servers of the client.

use std::ffi::OsString;

use copy::Failure;
use ftp::{PasswordSource, RemoteLogin, RemoteServer, Remotes};

use super::file::{ConfigurationFile, FileSetting, RemoteSection};
use super::value::{SettingValue, expand_home};

/// The remotes of all files; of two with one name, the first counts.
///
/// # Errors
/// `Usage`: the first mistake, with file and line.
pub(super) fn remotes(files: &[ConfigurationFile]) -> Result<Remotes, Failure> {
    let sections = files
        .iter()
        .flat_map(|file| file.remotes.iter().map(move |section| (file, section)));
    let servers = sections.map(|(file, section)| {
        server(section).map_err(|(line, problem)| {
            let place = format!("{}:{line}", file.path.display());
            Failure::usage(format!("{place}: {}: {problem}", section.head()))
        })
    });
    servers.collect::<Result<_, _>>().map(Remotes::new)
}

/// The server of a section.
///
/// # Errors
/// The line and the mistake, without secrets.
pub(super) fn server(section: &RemoteSection) -> Result<RemoteServer, (usize, String)> {
    let text = |name: &str| section.login(name).map(one_text).transpose();
    let Some(url) = text("url")? else {
        return Err((section.line, "it has no `url`".to_owned()));
    };
    let user = text("user")?;
    let login = login(section)?;
    RemoteServer::new(&section.name, url, user, login)
        .map_err(|failure| (section.line, failure.to_string()))
}

/// How to log in. Of the sources, a section has at most one.
fn login(section: &RemoteSection) -> Result<RemoteLogin, (usize, String)> {
    let is_source = |setting: &&FileSetting| !matches!(setting.name.as_str(), "url" | "user");
    let mut sources = section.login.iter().filter(is_source);
    let Some(source) = sources.next() else {
        return Ok(RemoteLogin::OfUrls);
    };
    if let Some(second) = sources.next() {
        let problem = format!("`{}` and `{}`: keep one of them", source.name, second.name);
        return Err((second.line, problem));
    }
    if source.name == "password-command" {
        return Ok(RemoteLogin::Password(PasswordSource::Command(command(
            source,
        )?)));
    }
    let text = one_text(source)?;
    Ok(match source.name.as_str() {
        "token" => RemoteLogin::Token(expand_home(text)),
        "password" => RemoteLogin::Password(PasswordSource::Text(text.into())),
        "password-env" => RemoteLogin::Password(PasswordSource::Variable(text.to_owned())),
        "password-file" => RemoteLogin::Password(PasswordSource::File(expand_home(text))),
        // `netrc`; there is no other key.
        _ => RemoteLogin::Password(PasswordSource::Netrc(expand_home(text))),
    })
}

/// A program and its arguments: a list, or a text for the shell.
fn command(setting: &FileSetting) -> Result<Vec<OsString>, (usize, String)> {
    match &setting.value {
        SettingValue::Words(words) => Ok(match words.as_slice() {
            [line] => ["sh", "-c", line].map(OsString::from).to_vec(),
            words => words.iter().map(OsString::from).collect(),
        }),
        SettingValue::Switch(_) => Err((setting.line, "write a command".to_owned())),
    }
}

fn one_text(setting: &FileSetting) -> Result<&str, (usize, String)> {
    match &setting.value {
        SettingValue::Words(words) if words.len() == 1 && !words[0].is_empty() => Ok(&words[0]),
        _ => Err((setting.line, format!("`{}` needs a text", setting.name))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(lines: &str) -> Result<Remotes, Failure> {
        let text = format!("[remote.cern]\n{lines}");
        let file = ConfigurationFile::parse(Path::new("/c.toml"), &text);
        remotes(&[file.unwrap_or_else(|mistakes| panic!("{mistakes:?}"))])
    }

    #[test]
    fn a_remote_has_at_most_one_source_of_its_login() {
        let base = "url = \"ftps://h\"\nuser = \"ann\"\n";
        for source in [
            "",
            "password = \"x\"",
            "password-env = \"X\"",
            "password-file = \"~/x\"",
            "password-command = [\"pass\", \"cern\"]",
            "password-command = \"pass cern\"",
            "netrc = \"/n\"",
        ] {
            read(&format!("{base}{source}")).unwrap();
        }
        read("url = \"ftps://h\"\ntoken = \"/t\"").unwrap();
        let failure = read(&format!("{base}password = \"hush\"\nnetrc = \"/n\"")).unwrap_err();
        assert!(
            failure.to_string().contains("keep one of them"),
            "{failure}"
        );
        assert!(
            failure.to_string().starts_with("/c.toml:5: [remote.cern]"),
            "{failure}"
        );
    }

    #[test]
    fn a_mistake_is_named_without_the_password() {
        for (lines, word) in [
            ("user = \"ann\"", "no `url`"),
            ("url = \"ftp://h\"\npassword = \"hush\"", "needs `user`"),
            ("url = \"ftp://a:hush@h\"", "has a password"),
            ("url = [\"a\", \"b\"]", "needs a text"),
            (
                "url = \"ftp://h\"\nuser = \"ann\"\npassword = [\"hush\", \"a\"]",
                "needs a text",
            ),
        ] {
            let failure = read(lines).unwrap_err();
            assert!(failure.to_string().contains(word), "{failure}");
            assert!(!failure.to_string().contains("hush"), "{failure}");
        }
    }
}
