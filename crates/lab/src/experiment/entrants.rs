//! Which programs take part in a run of an experiment.

use std::path::Path;

use super::axes::Kind;
use super::definition::Definition;
use super::document::mistake;
use super::environment;
use super::plan::Entrant;
use super::program::Search;
use super::{RunRequest, catalog};
use crate::LabError;

/// The programs that take part, and what is to be told about those that do not.
#[derive(Debug, Default)]
pub(crate) struct Entrants {
    /// In the order they are shown.
    pub(crate) all: Vec<Entrant>,
    /// Remarks for the reader of the results.
    pub(crate) notes: Vec<String>,
    /// Version lines, by program key.
    pub(crate) versions: Vec<(String, String)>,
}

/// Gathers the programs that `request` or else the experiment names and that are installed.
///
/// # Errors
/// No such program, a mistake in its file, or none is installed.
pub(crate) fn gather(
    request: &RunRequest,
    definition: &Definition,
    longhaul: &Path,
) -> Result<Entrants, LabError> {
    let path = Path::new(&request.name);
    let beside = path.extension().and_then(|_| path.parent());
    let keys = if request.programs.is_empty() {
        definition.programs.of(request.mode)
    } else {
        &request.programs
    };
    let search = Search::from_environment();
    let mut entrants = Entrants::default();
    for key in keys {
        let variant = definition.variants.get(key);
        let program = variant.map_or(key, |variant| &variant.program);
        let program = catalog::program(beside, program)?;
        if program.client.is_none() != (definition.kind == Kind::Sim) {
            return Err(mistake(
                &request.name,
                "programs",
                format!("{key} does not fit this 'kind'"),
            ));
        }
        let root = rustix::process::geteuid().is_root();
        if !root && program.needs_root.contains(&definition.kind) {
            let note = format!("{} left out: its server needs root", program.label);
            entrants.notes.push(note);
            continue;
        }
        let mut binaries = match program.locate(&search) {
            Ok(binaries) => binaries,
            Err(note) => {
                entrants.notes.push(note);
                continue;
            }
        };
        let remarks = [
            program.note.clone(),
            variant.and_then(|variant| variant.note(request.mode)),
        ];
        for remark in remarks.into_iter().flatten() {
            // Variants of one program share its remark.
            if !entrants.notes.contains(&remark) {
                entrants.notes.push(remark);
            }
        }
        binaries.insert("longhaul".to_owned(), longhaul.display().to_string());
        if let Some(version) = environment::version(&program.version, &binaries) {
            entrants.versions.push((key.clone(), version));
        }
        entrants.all.push(Entrant {
            key: key.clone(),
            program,
            binaries,
            variant: variant.cloned(),
        });
    }
    if entrants.all.is_empty() {
        return Err(LabError::NotFound(entrants.notes.join("; ")));
    }
    Ok(entrants)
}

/// The `longhaul` under test: `LONGHAUL_BIN`, else this executable.
///
/// # Errors
/// The kernel does not say what runs.
pub(crate) fn longhaul() -> Result<std::path::PathBuf, LabError> {
    match std::env::var_os("LONGHAUL_BIN") {
        Some(path) => {
            std::path::absolute(&path).map_err(|e| LabError::system("cannot find LONGHAUL_BIN", e))
        }
        None => {
            std::env::current_exe().map_err(|e| LabError::system("cannot find this executable", e))
        }
    }
}
