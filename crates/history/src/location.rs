//! Where the file is.

use std::path::PathBuf;

/// The environment variable that replaces the usual file: `off`, or the path of a file.
pub const ENVIRONMENT_VARIABLE: &str = "LONGHAUL_HISTORY";

/// The environment variable with the state directory of a service (systemd.exec(5)).
const SERVICE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Whether there is a memory, and in which file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HistoryLocation {
    /// Nothing is read or written.
    #[default]
    Off,
    /// This file.
    File(PathBuf),
}

impl HistoryLocation {
    /// Reads `off` or a path.
    pub fn parse(text: &str) -> Self {
        match text {
            "off" => Self::Off,
            path => Self::File(PathBuf::from(path)),
        }
    }

    /// The file of `longhaul cp`: by [`ENVIRONMENT_VARIABLE`], else `longhaul/paths.json` in the user's state directory.
    pub fn of_user() -> Self {
        Self::from_environment(&environment, "longhaul/paths.json")
    }

    /// The file of `longhaul serve`: by [`ENVIRONMENT_VARIABLE`], else `paths.json` in the state directory of the service,
    /// else `longhaul/serve/paths.json` in the user's state directory.
    pub fn of_server() -> Self {
        // systemd.exec(5): several directories are separated by colons.
        let service = environment(SERVICE_DIRECTORY)
            .and_then(|all| all.split(':').next().map(PathBuf::from))
            .filter(|directory| directory.is_absolute());
        match service {
            Some(directory) if environment(ENVIRONMENT_VARIABLE).is_none() => {
                Self::File(directory.join("paths.json"))
            }
            _ => Self::from_environment(&environment, "longhaul/serve/paths.json"),
        }
    }

    /// The file, if there is a memory.
    pub fn file(self) -> Option<PathBuf> {
        match self {
            Self::Off => None,
            Self::File(path) => Some(path),
        }
    }

    fn from_environment(get: &dyn Fn(&str) -> Option<String>, below: &str) -> Self {
        if let Some(text) = get(ENVIRONMENT_VARIABLE) {
            return Self::parse(&text);
        }
        let absolute = |name| {
            get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        // XDG Base Directory Specification: a relative path is invalid and ignored.
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        state.map_or(Self::Off, |state| Self::File(state.join(below)))
    }
}

/// A variable that is set and not empty.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        HistoryLocation::from_environment(&get, "longhaul/paths.json").file()
    }

    #[test]
    fn the_state_directory_is_the_usual_place() {
        let home = ("HOME", "/home/u");
        let usual = Some("/home/u/.local/state/longhaul/paths.json".into());
        assert_eq!(with(&[home]), usual);
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "state")]), usual);
        let state = with(&[home, ("XDG_STATE_HOME", "/state")]);
        assert_eq!(state, Some("/state/longhaul/paths.json".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_variable_names_a_file_or_turns_the_memory_off() {
        let home = ("HOME", "/home/u");
        assert_eq!(with(&[home, (ENVIRONMENT_VARIABLE, "off")]), None);
        let named = with(&[home, (ENVIRONMENT_VARIABLE, "/tmp/x")]);
        assert_eq!(named, Some("/tmp/x".into()));
    }
}
