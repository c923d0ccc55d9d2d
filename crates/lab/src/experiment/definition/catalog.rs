//! The experiment and program files that ship with the lab, and the loading of these and of users' files.

use std::path::Path;

use super::hash::fingerprint;
use super::program::ProgramDefinition;
use super::{ExperimentDefinition, require};
use crate::LabError;

/// A data file that is compiled into the executable: its name without `.toml`, and its text.
type ShippedFile = (&'static str, &'static str);

macro_rules! shipped {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../", $directory, "/", $name, ".toml")))),*]
    };
}

/// The experiments, in the order in which `longhaul lab list` shows them.
pub(crate) const EXPERIMENTS: &[ShippedFile] = shipped!["experiments":
    "bbc-4.1",
    "bbc-5.1", "bbc-5.2", "bbc-5.3", "bbc-5.4",
    "bbc-5.4-simulated",
    "drs2003-kernel",
    "drs2003-simulated",
    "drs2003-drsftp",
    "drs2003-copies",
    "drs2003-path",
    "drsftp2004-emulated",
    "drsftp2004-wan",
    "drsftp2004-traces",
    "drsftp2004-memory",
    "drsftp2004-third-party",
    "auto-vs-kernel",
    "autopar-real",
    "auto-oracle",
    "auto-oracle-loss",
    "auto-start",
    "distance",
    "history",
    "enable-fig1", "enable-fig1-simulated", "enable-fig3", "enable-table1", "enable-table2", "enable-table4", "enable-enforce", "enable-estimators",
    "fairness",
    "steps",
    "loopback", "loopback-latency", "loopback-io",
    "loopback-protected", "handshakes",
    "idle-sessions",
    "sync-policy",
    "small-files", "small-files-loopback", "foreign-big", "ssh",
    "two-builds", "two-builds-wan",
    "calibration-ping",
    "calibration-udp",
    "calibration-tcp",
    "calibration-loss",
    "ns2-static",
    "ns2-static-rtt",
    "autopar-fig3", "autopar-fig4", "autopar-fig5", "autopar-fig6", "autopar-fig7",
    "autopar-readings", "autopar-parameters", "autopar-small", "autopar-networks", "autopar-fairness",
];

/// The programs under test.
pub(crate) const PROGRAMS: &[ShippedFile] = shipped!["programs":
    "longhaul", "longhaul-auto", "longhaul-unverified",
    "longhaul-buffers",
    "longhaul-buffers-busy",
    "longhaul-buffers-put",
    "longhaul-buffers-third-party",
    "longhaul-either",
    "longhaul-history",
    "longhaul-globus-either",
    "longhaul-flows",
    "longhaul-steps",
    "longhaul-estimates", "path-estimates", "trace-truth",
    "longhaul-io",
    "longhaul-sync",
    "longhaul-copy", "longhaul-globus-copy", "longhaul-vsftpd-copy",
    "longhaul-build",
    "idle-sessions",
    "longhaul-gsi", "globus-gsi", "longhaul-tls", "tls-pump",
    "longhaul-handshakes", "openssl-handshakes",
    "globus-server", "globus-copy", "vsftpd-writable", "lftp-mirror", "lftp-longhaul-mirror", "lftp-pget",
    "rclone-copy",
    "sshd", "rsync-ssh", "scp", "rclone-sftp", "syq", "globus-sshftp",
    "longhaul-ssh", "longhaul-ssh-closed", "longhaul-sftp",
    "globus", "globus-either", "vsftpd", "curl", "lftp", "ncftpget", "aria2", "block-reader",
    "advisor", "path-tests",
    "iperf3", "iperf3-steady", "iperf3-udp", "ping", "simulator",
];

/// An experiment that ships with the lab.
#[derive(Debug)]
pub struct ExperimentListing {
    /// The argument of `longhaul lab run`.
    pub name: String,
    /// One line that describes the experiment.
    pub title: String,
    /// The published result that it is compared with; empty: none.
    pub source: String,
}

/// Lists the shipped experiments. A test checks that all their files are valid, so that none is missing.
pub(crate) fn listings() -> Vec<ExperimentListing> {
    let listing = |(name, text): &ShippedFile| {
        let definition = ExperimentDefinition::parse(name, text).ok()?;
        Some(ExperimentListing {
            name: (*name).to_owned(),
            title: definition.title,
            source: definition.source,
        })
    };
    EXPERIMENTS.iter().filter_map(listing).collect()
}

/// An experiment that was read from its file.
#[derive(Debug)]
pub(crate) struct LoadedExperiment {
    /// The name under which results are saved: the file's name without `.toml`.
    pub(crate) name: String,
    pub(crate) definition: ExperimentDefinition,
    /// The hash of the file's text, which tells its versions apart.
    pub(crate) fingerprint: String,
}

/// Loads a shipped experiment by its name, or a user's by the path of its file, which ends in `.toml`.
///
/// # Errors
/// [`LabError::NotFound`], or [`LabError::Usage`] for a mistake in the file.
pub(crate) fn load_experiment(name: &str) -> Result<LoadedExperiment, LabError> {
    let path = Path::new(name);
    let (file, stem, text) = if path.extension().is_some_and(|end| end == "toml") {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        (name.to_owned(), stem.into_owned(), read(path)?)
    } else {
        let text = find_text(EXPERIMENTS, name).ok_or_else(|| {
            let names = join_names(EXPERIMENTS);
            LabError::NotFound(format!(
                "there is no experiment '{name}'; there are {names}, and files that end in .toml"
            ))
        })?;
        (format!("{name}.toml"), name.to_owned(), text.to_owned())
    };
    Ok(LoadedExperiment {
        name: stem,
        definition: ExperimentDefinition::parse(&file, &text)?,
        fingerprint: fingerprint(&text),
    })
}

/// Loads a program by its key, inside of the one that its file names. The directory of the user's experiment
/// file is searched first, so that a file there adds a program or replaces a shipped one.
///
/// # Errors
/// [`LabError::NotFound`], or [`LabError::Usage`] for a mistake in the file.
pub(crate) fn load_program(
    own_directory: Option<&Path>,
    key: &str,
) -> Result<ProgramDefinition, LabError> {
    let program = load_program_file(own_directory, key)?;
    let Some(name) = program.within.clone() else {
        return Ok(program);
    };
    let outer = load_program_file(own_directory, &name)?;
    // One level is enough, and programs cannot be inside of each other.
    require(
        key,
        "within",
        outer.within.is_none(),
        "is itself inside of one",
    )?;
    Ok(program.inside(&name, outer))
}

/// Loads the file of a program.
fn load_program_file(
    own_directory: Option<&Path>,
    key: &str,
) -> Result<ProgramDefinition, LabError> {
    let own = own_directory.map(|directory| directory.join(format!("{key}.toml")));
    if let Some(path) = own.filter(|path| path.is_file()) {
        return ProgramDefinition::parse(&path.display().to_string(), &read(&path)?);
    }
    let text = find_text(PROGRAMS, key).ok_or_else(|| {
        let names = join_names(PROGRAMS);
        LabError::NotFound(format!(
            "there is no program '{key}'; there are {names}, and KEY.toml files in an experiment's directory"
        ))
    })?;
    ProgramDefinition::parse(&format!("{key}.toml"), text)
}

/// Finds the text of a shipped file.
fn find_text(shipped: &[ShippedFile], name: &str) -> Option<&'static str> {
    let mut shipped = shipped.iter();
    shipped
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

/// Lists the names of shipped files for a message.
fn join_names(shipped: &[ShippedFile]) -> String {
    let names: Vec<_> = shipped.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn read(path: &Path) -> Result<String, LabError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            LabError::NotFound(format!("no such file: {}", path.display()))
        }
        _ => LabError::system(format!("cannot read {}", path.display()), source),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::experiment::definition::program::{ClientDefinition, ServerDefinition};
    use crate::experiment::definition::reading::{OutputReading, SeriesDefinition};
    use crate::experiment::definition::tree::TreeDefinition;
    use crate::experiment::definition::{
        AxisDefinition, BestDefinition, ExperimentKind, MeasureDefinition, Mode, RatioDefinition,
        VariantDefinition,
    };

    /// The keys of a table: the message about an unknown one lists those that it knows.
    fn keys<T: DeserializeOwned>() -> Vec<String> {
        let message = toml::from_str::<T>("unknown-key = 1").err().unwrap();
        let quoted = message.message().split('`').skip(1).step_by(2);
        quoted
            .filter(|key| *key != "unknown-key")
            .map(str::to_owned)
            .collect()
    }

    fn collect_keys(value: &toml::Value, into: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
                into.insert(key.clone());
                collect_keys(value, into);
            }),
            toml::Value::Array(values) => values.iter().for_each(|value| collect_keys(value, into)),
            _ => {}
        }
    }

    #[test]
    fn every_key_of_the_language_is_used_by_a_shipped_file() {
        let used = |shipped: &[ShippedFile]| {
            let mut used = BTreeSet::new();
            for (_, text) in shipped {
                collect_keys(&toml::from_str(text).unwrap(), &mut used);
            }
            used
        };
        let of_experiments = [
            keys::<ExperimentDefinition>(),
            keys::<AxisDefinition>(),
            keys::<MeasureDefinition>(),
            keys::<RatioDefinition>(),
            keys::<VariantDefinition>(),
            keys::<BestDefinition>(),
            keys::<SeriesDefinition>(),
            keys::<TreeDefinition>(),
        ];
        let of_programs = [
            keys::<ProgramDefinition>(),
            keys::<ServerDefinition>(),
            keys::<ClientDefinition>(),
            keys::<OutputReading>(),
        ];
        for (shipped, known) in [(EXPERIMENTS, &of_experiments[..]), (PROGRAMS, &of_programs)] {
            let used = used(shipped);
            let known = known.concat();
            assert!(known.len() > 20, "{known:?}");
            let unused: Vec<_> = known.iter().filter(|key| !used.contains(*key)).collect();
            assert!(unused.is_empty(), "{unused:?}");
        }
    }

    #[test]
    fn every_shipped_file_is_valid() {
        assert_eq!(listings().len(), EXPERIMENTS.len());
        for (key, _) in PROGRAMS {
            load_program(None, key).unwrap();
        }
    }

    #[test]
    fn experiments_about_tcp_use_the_systems_congestion_control_and_buffers() {
        for (name, _) in EXPERIMENTS {
            let definition = load_experiment(name).unwrap().definition;
            let about_tcp = ["bbc", "drs", "loopback", "auto-vs-kernel"];
            // loopback-io compares the methods of I/O with longhaul's defaults, so that it sets nothing.
            let is_about_tcp = about_tcp.iter().any(|start| name.starts_with(start));
            let is_simulated = definition.kind == ExperimentKind::Sim;
            if !is_about_tcp || is_simulated || *name == "loopback-io" {
                continue;
            }
            let parameter = |key: &str| definition.parameters.get(key).map(String::as_str);
            assert_eq!(parameter("cc"), Some("system"), "{name}");
            let sizing = parameter("sizing");
            let is_kernels = ["bbc-5.1", "bbc-5.2", "bbc-5.4"].contains(name);
            assert_eq!(sizing == Some("kernel"), is_kernels, "{name}");
            for key in definition.programs.for_mode(Mode::Full) {
                let key = definition.program_of(key);
                let text = find_text(PROGRAMS, key).unwrap();
                let pinned = text.contains(r#"["--cc", "{cc}"]"#);
                assert_eq!(pinned, key.starts_with("longhaul"), "{name}: {key}");
                let leaves = text.contains(r#"["--buffer", "{sizing}"]"#);
                assert!(sizing.is_none() || key != "longhaul" || leaves, "{name}");
            }
        }
    }

    #[test]
    fn all_data_files_are_in_the_catalog() {
        for (directory, shipped) in [("experiments", EXPERIMENTS), ("programs", PROGRAMS)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                let stem = path.file_stem().unwrap().to_str().unwrap();
                assert!(shipped.iter().any(|(name, _)| *name == stem), "{stem}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_refused_and_a_file_in_the_experiments_directory_replaces_a_program() {
        let message = load_experiment("bbc-9").unwrap_err().to_string();
        assert!(
            message.contains("'bbc-9'") && message.contains("bbc-5.1"),
            "{message}"
        );
        assert!(matches!(
            load_experiment("/no/such.toml"),
            Err(LabError::NotFound(_))
        ));
        assert!(matches!(
            load_program(None, "rsync"),
            Err(LabError::NotFound(_))
        ));
        let directory = tempfile::tempdir().unwrap();
        let text = "label = 'Mine'\n[client]\nhost = 'a'\nargv = ['x']\n";
        std::fs::write(directory.path().join("curl.toml"), text).unwrap();
        let own = load_program(Some(directory.path()), "curl").unwrap();
        assert_eq!(own.label, "Mine");
        let text = "label = 'Outer'\nwithin = 'curl'\n[server]\nhost = 'b'\nargv = ['y']\n";
        std::fs::write(directory.path().join("outer.toml"), text).unwrap();
        let text = "label = 'Inner'\nwithin = 'NAME'\n[client]\nhost = 'a'\nargv = ['z']\n";
        for (outer, name) in [("curl", "inner"), ("outer", "innermost")] {
            let file = directory.path().join(format!("{name}.toml"));
            std::fs::write(file, text.replace("NAME", outer)).unwrap();
        }
        let inner = load_program(Some(directory.path()), "inner").unwrap();
        assert_eq!(inner.client.unwrap().argv.len(), 2);
        let nested = load_program(Some(directory.path()), "innermost").unwrap_err();
        assert!(nested.to_string().contains("'within'"), "{nested}");
        assert_ne!(load_program(None, "curl").unwrap().label, "Mine");
    }
}
