//! Settings that one value serves the whole machine for: changed for the run, put back after it.
//!
//! Three may put them back, whoever is left: the lab itself; the first process of its process
//! namespace, when the lab was killed; the next lab of root's, from a file, when both were.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::sysctl;
use crate::LabError;

/// Only root can write here, so root can trust what it finds.
const RECORD: &str = "/run/longhaul-lab.sysctls";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SysctlChange {
    key: String,
    /// The setting as it was.
    before: String,
    /// The setting that the lab made of it.
    during: String,
}

/// Settings that are to be put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SysctlChanges(Vec<SysctlChange>);

/// Puts the settings back when it goes.
#[derive(Debug, Default)]
pub(super) struct TemporarySysctls {
    changes: SysctlChanges,
}

impl TemporarySysctls {
    /// Sets what the hosts want of the machine. A value that is there already needs no root.
    ///
    /// # Errors
    /// [`LabError::Usage`]: two hosts want different values, or the kernel does not take one;
    /// [`LabError::Refused`]: not root. Nothing stays changed then.
    pub(super) fn set(wanted: &[(String, String)]) -> Result<Self, LabError> {
        let mut changes = Vec::<SysctlChange>::new();
        for (key, value) in wanted {
            let during = sysctl::normalized(value);
            if let Some(other) = changes.iter().find(|c| &c.key == key) {
                if other.during == during {
                    continue;
                }
                return Err(LabError::Usage(format!(
                    "{key} is one setting for the whole machine: hosts cannot have '{}' and \
                     '{during}'",
                    other.during
                )));
            }
            changes.push(SysctlChange {
                key: key.clone(),
                before: sysctl::read(key)?,
                during,
            });
        }
        changes.retain(|c| c.before != c.during);
        let borrowed = Self {
            changes: SysctlChanges(changes),
        };
        if !borrowed.changes.0.is_empty() {
            borrowed.record()?;
            for SysctlChange { key, during, .. } in &borrowed.changes.0 {
                sysctl::set_machine(key, during)?;
            }
        }
        Ok(borrowed)
    }

    /// For the process that outlives this one.
    pub(super) fn changes(&self) -> &SysctlChanges {
        &self.changes
    }

    /// Before the first change: what is changed is always on record.
    fn record(&self) -> Result<(), LabError> {
        let text = serde_json::to_string(&self.changes).map_err(std::io::Error::from);
        let written = text.and_then(|text| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(RECORD)?
                .write_all(text.as_bytes())
        });
        written.map_err(|e| match e.kind() {
            ErrorKind::PermissionDenied => self.changes.not_root(),
            _ => LabError::system(format!("cannot write {RECORD}"), e),
        })
    }
}

impl Drop for TemporarySysctls {
    fn drop(&mut self) {
        self.changes.revert();
    }
}

impl SysctlChanges {
    /// Puts back what nobody else has changed since.
    pub(super) fn revert(&self) {
        if self.0.is_empty() {
            return;
        }
        self.restore();
        if let Err(error) = std::fs::remove_file(RECORD)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::error!(%error, "cannot remove {RECORD}");
        }
    }

    fn not_root(&self) -> LabError {
        let commands: Vec<String> = self
            .0
            .iter()
            .map(|c| format!("sudo sysctl -w {}='{}'", c.key, c.during))
            .collect();
        LabError::Refused(format!(
            "a setting of the whole machine is asked for, and only root may change it: run as root, \
             or set it first with `{}`",
            commands.join(" && ")
        ))
    }

    fn restore(&self) {
        for SysctlChange {
            key,
            before,
            during,
        } in self.0.iter().rev()
        {
            if sysctl::read(key).is_ok_and(|now| &now == during)
                && let Err(error) = sysctl::set_machine(key, before)
            {
                tracing::error!(%error, "a setting of the machine could not be put back");
            }
        }
    }
}

/// Whether a lab has changed settings that are not put back yet; it may still run.
pub(super) fn has_record() -> bool {
    std::path::Path::new(RECORD).exists()
}

/// Puts back what a lab left changed that was killed together with all its processes. The caller
/// holds the lock of labs.
///
/// # Errors
/// The record cannot be read although this is root, or is damaged.
pub(super) fn recover() -> Result<(), LabError> {
    let text = match std::fs::read_to_string(RECORD) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        Err(e) => return Err(LabError::system(format!("cannot read {RECORD}"), e)),
    };
    let changes: SysctlChanges = serde_json::from_str(&text).map_err(|e| {
        LabError::system(
            format!("{RECORD}, left by a lab that was killed, is damaged (remove it)"),
            e,
        )
    })?;
    changes.revert();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "net.core.somaxconn";

    fn wanted(values: &[&str]) -> Vec<(String, String)> {
        let pair = |value: &&str| (KEY.to_owned(), (*value).to_owned());
        values.iter().map(pair).collect()
    }

    #[test]
    fn what_is_so_already_is_not_borrowed() {
        let now = sysctl::read(KEY).unwrap();
        let borrowed = TemporarySysctls::set(&wanted(&[&now, &format!(" {now}\t")])).unwrap();
        assert_eq!(borrowed.changes, SysctlChanges::default());
    }

    #[test]
    fn hosts_that_disagree_change_nothing() {
        let before = sysctl::read(KEY).unwrap();
        let told = TemporarySysctls::set(&wanted(&["101", "102"])).unwrap_err();
        assert!(matches!(told, LabError::Usage(_)));
        assert!(told.to_string().contains("'101' and '102'"), "{told}");
        assert_eq!(sysctl::read(KEY).unwrap(), before);
    }

    #[test]
    fn what_somebody_else_has_changed_since_stays() {
        let before = sysctl::read(KEY).unwrap();
        // As if the lab had made it 103, and an administrator what it is now.
        SysctlChanges(vec![SysctlChange {
            key: KEY.to_owned(),
            before: "104".to_owned(),
            during: "103".to_owned(),
        }])
        .restore();
        assert_eq!(sysctl::read(KEY).unwrap(), before);
    }

    #[test]
    fn the_way_out_without_root_is_a_command_line() {
        let changes = SysctlChanges(vec![SysctlChange {
            key: "net.core.rmem_max".to_owned(),
            before: "1".to_owned(),
            during: "2".to_owned(),
        }]);
        let told = changes.not_root().to_string();
        assert!(
            told.contains("`sudo sysctl -w net.core.rmem_max='2'`"),
            "{told}"
        );
    }
}
