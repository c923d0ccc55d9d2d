//! The names of settings: flags of `cp` and `sync`.

use clap::{Arg, Args, Command};

use super::built_command;
use super::value::SettingValue;
use crate::args::RemoteCommonArgs;

/// Flags that belong to one command, not to all.
const OF_ONE_COMMAND: [&str; 10] = [
    "config",
    "failed",
    "files-from",
    "from",
    "help",
    "journal",
    "length",
    "offset",
    "receipt",
    "version",
];

/// Flags about the protection of connections, and about who carries them. They hold for all servers of a command.
const PROTECTION: [&str; 10] = [
    "ca",
    "cert",
    "data-protection",
    "delegate",
    "insecure",
    "key",
    "proxy",
    "ssh-install",
    "ssh-program",
    "tls",
];

/// The verbs that take settings.
const VERBS: [&str; 11] = [
    "cksum", "cp", "doctor", "ls", "mkdir", "mv", "rm", "ssh", "stat", "sync", "verify",
];

/// The settings of `doctor`: its other flags of these names are about a server of this machine.
const OF_DOCTOR: [&str; 3] = ["ca", "ssh", "ssh-program"];

/// A setting.
#[derive(Debug, Clone)]
pub(super) struct SettingKey {
    /// The name of its flag, without `--`.
    pub(super) name: String,
    /// The flag.
    pub(super) flag: Arg,
    /// The verb whose flag it is: `cp`, or `sync` if `cp` has none.
    pub(super) verb: &'static str,
}

impl SettingKey {
    /// The environment variable with the value.
    pub(super) fn variable(&self) -> String {
        format!("LONGHAUL_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// Whether the value concerns the protection of connections or the login.
    pub(super) fn is_protection(&self) -> bool {
        PROTECTION.contains(&self.name.as_str()) || matches!(&*self.name, "token" | "token-host")
    }

    /// Parses the value as a command with only this flag does.
    ///
    /// # Errors
    /// The value is refused, for the reason in the text.
    pub(super) fn check(&self, words: &[std::ffi::OsString]) -> Result<(), String> {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument};
        let program = ["longhaul", self.verb].map(std::ffi::OsString::from);
        let places = ["a", "b"].map(std::ffi::OsString::from);
        let line = program.iter().chain(words).chain(&places);
        match built_command().try_get_matches_from(line) {
            Ok(_) => Ok(()),
            // It may be right beside other flags.
            Err(error) if matches!(error.kind(), ArgumentConflict | MissingRequiredArgument) => {
                Ok(())
            }
            Err(error) => Err(super::one_line(&error)),
        }
    }
}

/// Shown instead of a password.
const HIDDEN: &str = "(hidden)";

/// The value of a setting without secrets: the login of a proxy is masked.
pub(super) fn masked(name: &str, value: &SettingValue) -> SettingValue {
    match (name, value) {
        ("password", _) => SettingValue::Words(vec![HIDDEN.to_owned()]),
        ("proxy", SettingValue::Words(words)) => {
            let masked = words.iter().map(|word| ftp::mask_proxy(word));
            SettingValue::Words(masked.collect())
        }
        _ => value.clone(),
    }
}

/// Whether the value of a setting has a password.
pub(super) fn is_secret(name: &str, value: &SettingValue) -> bool {
    masked(name, value) != *value
}

/// All settings, sorted by name.
pub(super) fn all() -> Vec<SettingKey> {
    let command = built_command();
    let mut keys: Vec<SettingKey> = Vec::new();
    for verb in ["cp", "sync"] {
        let flags = command.find_subcommand(verb).into_iter();
        for flag in flags.flat_map(Command::get_arguments) {
            let Some(name) = flag.get_long() else {
                continue;
            };
            let is_known = keys.iter().any(|key| key.name == name);
            if !is_known && !OF_ONE_COMMAND.contains(&name) {
                keys.push(SettingKey {
                    name: name.to_owned(),
                    flag: flag.clone(),
                    verb,
                });
            }
        }
    }
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    keys
}

/// The settings of a verb; none if it is not one of the client. The verbs for remote files have those about connections only: a default such as
/// `recursive` must not reach `rm`.
pub(super) fn of_verb(verb: &str) -> Vec<SettingKey> {
    let mut keys = all();
    let command = built_command();
    let copies = matches!(verb, "cp" | "sync");
    let shared = RemoteCommonArgs::augment_args(Command::new("verb"));
    let has = |command: &Command, name: &str| {
        command
            .get_arguments()
            .any(|flag| flag.get_long() == Some(name))
    };
    let flags = command
        .find_subcommand(verb)
        .filter(|_| VERBS.contains(&verb));
    keys.retain(|key| {
        let is_of_verb = flags.is_some_and(|flags| has(flags, &key.name));
        let is_its_own = verb != "doctor" || OF_DOCTOR.contains(&key.name.as_str());
        is_of_verb && is_its_own && (copies || has(&shared, &key.name))
    });
    keys
}

/// Refuses a name that is no setting, and names the nearest one.
pub(super) fn refuse_unknown(name: &str, keys: &[SettingKey], others: &[&str]) -> String {
    if OF_ONE_COMMAND.contains(&name) {
        return format!("{name:?} is a flag of one command, and no setting");
    }
    let names = keys.iter().map(|key| key.name.as_str());
    let names = names.chain(others.iter().copied());
    // Flags have hyphens; variables and other programs' settings have underscores.
    let spelt = name.to_lowercase().replace('_', "-");
    if name != spelt && names.clone().any(|known| known == spelt) {
        return format!("{name:?} is not a setting; is {spelt:?} meant?");
    }
    smallfile::settings::unknown_name(name, "setting", names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::environment::OTHER_VARIABLES;

    #[test]
    fn flags_of_cp_and_sync_are_settings_unless_they_belong_to_one_command() {
        let names: Vec<String> = all().into_iter().map(|key| key.name).collect();
        for name in [
            "parallel",
            "limit-rate",
            "ca",
            "exclude",
            "delete",
            "preserve",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        for name in OF_ONE_COMMAND {
            assert!(!names.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn no_setting_makes_rm_recursive() {
        let names: Vec<String> = of_verb("rm").into_iter().map(|key| key.name).collect();
        assert!(names.iter().any(|name| name == "ca"));
        assert!(names.iter().any(|name| name == "timeout"));
        for name in ["recursive", "dry-run", "json", "delete"] {
            assert!(!names.iter().any(|known| known == name), "{name}");
        }
        assert!(of_verb("serve").is_empty());
        let of_doctor: Vec<String> = of_verb("doctor").into_iter().map(|key| key.name).collect();
        assert_eq!(of_doctor, OF_DOCTOR);
    }

    #[test]
    fn the_variable_of_a_setting_has_no_other_meaning() {
        for key in all() {
            let variable = key.variable();
            // LONGHAUL_ADVISOR is the value of --advisor.
            let is_taken =
                variable != "LONGHAUL_ADVISOR" && OTHER_VARIABLES.contains(&variable.as_str());
            assert!(!is_taken, "{variable}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let keys = all();
        let answer = |name| refuse_unknown(name, &keys, &["url"]);
        assert!(answer("max-stream").contains("\"max-streams\""));
        assert!(answer("limit_rate").contains("\"limit-rate\""));
        assert!(answer("urls").contains("\"url\""));
        assert!(answer("from").contains("one command"));
    }
}
