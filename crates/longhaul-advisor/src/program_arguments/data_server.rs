//! The data server in the arguments of a program.

use std::ffi::OsString;

use enable::emit::Program;

/// The host of the first URL, else the host where the program takes one. `None`: the arguments name none.
pub(crate) fn of_arguments(program: Program, arguments: &[OsString]) -> Option<String> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let by_url = words.iter().find_map(|word| host_of_url(word));
    by_url.or_else(|| match program {
        // ncftpget(1): [flags] remote-host local-directory remote-files...
        Program::Ncftpget => first_positional(&words, "BDEFPTVWXYdfjoprtu"),
        // lftp(1): [-e cmd] [-p port] [-u user[,pass]] site
        Program::Lftp => first_positional(&words, "cefpu"),
        Program::Iperf3 => iperf3_server(&words),
        _ => None,
    })
}

/// The schemes of object stores: the authority of their URLs is a bucket or a remote, no host.
const NO_HOSTS: [&str; 6] = ["s3", "gs", "gcs", "az", "azure", "b2"];

/// Whether a word is a URL that names a bucket, so that it names no data server.
pub(crate) fn names_bucket(word: &str) -> bool {
    let scheme = word
        .split_once("://")
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| NO_HOSTS.contains(&&*scheme))
}

/// The server that a user names: a host, HOST:PORT, or the host of a URL. A URL of `http:` without a path is that of the
/// advice server itself.
pub(crate) fn of_name(name: &str) -> String {
    let is_advice_server = name
        .strip_prefix("http://")
        .is_some_and(|rest| !rest.trim_end_matches('/').contains('/'));
    let host = host_of_url(name).filter(|_| !is_advice_server);
    host.unwrap_or_else(|| name.to_owned())
}

/// The host of a URL that names one, without port.
fn host_of_url(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if scheme.is_empty() || !scheme.chars().all(is_scheme) || names_bucket(word) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// The first word that is neither a flag nor the value of one of the flags `with_value`.
fn first_positional(words: &[&str], with_value: &str) -> Option<String> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some(flag) = word.strip_prefix('-') else {
            return Some((*word).to_owned());
        };
        // `-u NAME`; in `-uNAME` the value is part of the word.
        if flag.len() == 1 && with_value.contains(flag) {
            rest.next();
        }
    }
    None
}

/// `-c HOST`, `-cHOST`, `--client HOST` or `--client=HOST`.
fn iperf3_server(words: &[&str]) -> Option<String> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if matches!(*word, "-c" | "--client") {
            return rest.next().map(|host| (*host).to_owned());
        }
        let joined = word.strip_prefix("--client=").or_else(|| {
            let short = word.strip_prefix("-c")?;
            (!short.is_empty()).then_some(short)
        });
        if let Some(host) = joined {
            return Some(host.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program: Program, line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        of_arguments(program, &words)
    }

    #[test]
    fn the_first_url_with_a_host_names_the_server() {
        for (line, wanted) in [
            ("-O http://data.example/f", "data.example"),
            ("ftp://ann:p@data.example:2121/f", "data.example"),
            ("https://[2001:db8::1]:443/f", "2001:db8::1"),
            ("file:///tmp/f gsiftp://data.example/f", "data.example"),
            (
                "gsiftp://one.example/f gsiftp://two.example/f",
                "one.example",
            ),
            ("sftp://data.example?x", "data.example"),
        ] {
            let host = found(Program::GlobusUrlCopy, line);
            assert_eq!(host.as_deref(), Some(wanted), "{line}");
        }
        for line in [
            "",
            "file:///a file:///b",
            "f",
            "://host/f",
            "http://",
            "S3://bucket/f gs://bucket/f",
        ] {
            assert_eq!(found(Program::Curl, line), None, "{line}");
        }
    }

    #[test]
    fn the_server_that_is_named_may_be_a_url_of_any_scheme() {
        for (name, wanted) in [
            ("data.example", "data.example"),
            ("data.example:2812", "data.example:2812"),
            ("http://data.example:2813", "http://data.example:2813"),
            ("http://data.example:2813/", "http://data.example:2813/"),
            ("http://data.example:8080/f", "data.example"),
            ("ftp://ann@data.example:2121/f", "data.example"),
            ("gsiftp://[2001:db8::1]:2811/f", "2001:db8::1"),
            ("s3://bucket/f", "s3://bucket/f"),
        ] {
            assert_eq!(of_name(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_host_is_found_where_the_program_takes_one() {
        for (program, line) in [
            (Program::Ncftpget, "-u ann -p secret h /tmp /f"),
            (Program::Ncftpget, "-V -uann h . f"),
            (Program::Lftp, "-u ann,secret -e cmd h"),
            (Program::Iperf3, "-P 2 -c h -t 5"),
            (Program::Iperf3, "-ch"),
            (Program::Iperf3, "--client=h"),
            (Program::Iperf3, "--client h"),
        ] {
            assert_eq!(found(program, line).as_deref(), Some("h"), "{line}");
        }
        assert_eq!(found(Program::Iperf3, "-s"), None);
        assert_eq!(found(Program::Rclone, "copy remote:a b"), None);
    }
}
