//! The experiments and programs that ship with the lab, and how to find others.

use std::path::Path;

use super::definition::Definition;
use super::program::ProgramDefinition;
use super::{Listing, plan};
use crate::LabError;

/// A data file that is compiled in: its name without `.toml`, and its content.
type Shipped = (&'static str, &'static str);

macro_rules! shipped {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../", $directory, "/", $name, ".toml")))),*]
    };
}

/// In the order `longhaul lab list` shows them.
pub(crate) const EXPERIMENTS: &[Shipped] = shipped!["experiments":
    "bbc-5.1", "bbc-5.2", "bbc-5.3", "bbc-5.4",
    "drs2003-kernel",
    "drs2003-drsftp",
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
    "loopback", "loopback-latency",
    "calibration-ping",
    "calibration-udp",
    "calibration-tcp",
    "calibration-loss",
    "ns2-static",
    "ns2-static-rtt",
    "autopar-fig3", "autopar-fig4", "autopar-fig5", "autopar-fig6", "autopar-fig7",
];

/// Programs under test.
pub(crate) const PROGRAMS: &[Shipped] = shipped!["programs":
    "longhaul", "longhaul-auto", "longhaul-unverified",
    "longhaul-buffers",
    "longhaul-buffers-put",
    "longhaul-buffers-third-party",
    "longhaul-either",
    "longhaul-globus-either",
    "globus", "globus-either", "curl", "lftp", "aria2",
    "iperf3", "iperf3-steady", "iperf3-udp", "ping", "simulator",
];

/// The shipped experiments. Their files are checked by a test, so that none is left out here.
pub(crate) fn listings() -> Vec<Listing> {
    EXPERIMENTS
        .iter()
        .filter_map(|(name, text)| {
            let definition = Definition::parse(&format!("{name}.toml"), text).ok()?;
            Some(Listing {
                name: (*name).to_owned(),
                title: definition.title,
                source: definition.source,
            })
        })
        .collect()
}

/// An experiment and what its results are called.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Of its results.
    pub(crate) name: String,
    /// Its definition, as in the file.
    pub(crate) definition: Definition,
    /// Of the file's text.
    pub(crate) fingerprint: String,
}

/// An experiment by name, or by the path of its file, which ends in `.toml`.
///
/// # Errors
/// [`LabError::NotFound`], or what is wrong with the file.
pub(crate) fn known(name: &str) -> Result<Known, LabError> {
    let (name, text, definition) = parsed(name)?;
    Ok(Known {
        name,
        definition,
        fingerprint: plan::fingerprint(&text),
    })
}

/// Its name, its text, what that says.
fn parsed(name: &str) -> Result<(String, String, Definition), LabError> {
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        let text = std::fs::read_to_string(name).map_err(|source| unreadable(name, source))?;
        let stem = Path::new(name).file_stem().unwrap_or_default();
        let definition = Definition::parse(name, &text)?;
        return Ok((stem.to_string_lossy().into_owned(), text, definition));
    }
    let text = find(EXPERIMENTS, name).ok_or_else(|| {
        LabError::NotFound(format!(
            "there is no experiment '{name}'; there are {}, and files that end in .toml",
            names(EXPERIMENTS)
        ))
    })?;
    let definition = Definition::parse(&format!("{name}.toml"), text)?;
    Ok((name.to_owned(), text.to_owned(), definition))
}

/// A program by key. An experiment's own directory is asked first, so that a file beside a user's
/// experiment adds a program or replaces one.
///
/// # Errors
/// [`LabError::NotFound`], or what is wrong with the file.
pub(crate) fn program(beside: Option<&Path>, key: &str) -> Result<ProgramDefinition, LabError> {
    let own = beside.map(|directory| directory.join(format!("{key}.toml")));
    if let Some(path) = own.filter(|path| path.is_file()) {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|source| unreadable(&name, source))?;
        return ProgramDefinition::parse(&name, &text);
    }
    let text = find(PROGRAMS, key).ok_or_else(|| {
        LabError::NotFound(format!(
            "there is no program '{key}'; there are {}, and KEY.toml files beside an experiment's",
            names(PROGRAMS)
        ))
    })?;
    ProgramDefinition::parse(&format!("{key}.toml"), text)
}

fn find(shipped: &[Shipped], name: &str) -> Option<&'static str> {
    shipped
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

fn names(shipped: &[Shipped]) -> String {
    let names: Vec<_> = shipped.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn unreadable(name: &str, source: std::io::Error) -> LabError {
    match source.kind() {
        std::io::ErrorKind::NotFound => LabError::NotFound(format!("no such file: {name}")),
        _ => LabError::system(format!("cannot read {name}"), source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Mode;

    #[test]
    fn every_shipped_file_is_good_and_names_programs_that_ship() {
        assert_eq!(listings().len(), EXPERIMENTS.len());
        for (name, _) in EXPERIMENTS {
            let definition = known(name).unwrap().definition;
            for mode in [Mode::Full, Mode::Quick] {
                for key in definition.programs.of(mode) {
                    let variant = definition.variants.get(key);
                    program(None, variant.map_or(key, |v| &v.program)).unwrap();
                }
            }
        }
        for (key, _) in PROGRAMS {
            program(None, key).unwrap();
        }
    }

    #[test]
    fn experiments_about_tcp_as_it_comes_leave_congestion_control_and_buffers_to_the_system() {
        for (name, _) in EXPERIMENTS {
            let definition = known(name).unwrap().definition;
            let about_tcp = ["bbc", "drs", "loopback", "auto-vs-kernel"];
            if !about_tcp.iter().any(|start| name.starts_with(start)) {
                continue;
            }
            let cc = definition.parameters.get("cc").map(String::as_str);
            assert_eq!(cc, Some("system"), "{name}");
            let sizing = definition.parameters.get("sizing").map(String::as_str);
            let buffers_as_they_come = ["bbc-5.1", "bbc-5.2", "bbc-5.4"].contains(name);
            assert_eq!(sizing == Some("kernel"), buffers_as_they_come, "{name}");
            for key in &definition.programs.full {
                let variant = definition.variants.get(key);
                let key = variant.map_or(key, |v| &v.program);
                let text = find(PROGRAMS, key).unwrap();
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
    fn what_is_not_there_is_named() {
        let message = known("bbc-9").unwrap_err().to_string();
        assert!(
            message.contains("'bbc-9'") && message.contains("bbc-5.1"),
            "{message}"
        );
        assert!(matches!(known("/no/such.toml"), Err(LabError::NotFound(_))));
        assert!(matches!(program(None, "rsync"), Err(LabError::NotFound(_))));
    }

    #[test]
    fn a_file_beside_an_experiment_adds_a_program() {
        let directory = tempfile::tempdir().unwrap();
        let text = "label = 'Mine'\n[client]\nhost = 'a'\nargv = ['x']\n";
        std::fs::write(directory.path().join("curl.toml"), text).unwrap();
        let own = program(Some(directory.path()), "curl").unwrap();
        assert_eq!(own.label, "Mine");
        assert_ne!(program(None, "curl").unwrap().label, "Mine");
    }
}
