//! Settings that exist once per machine: changed for the run and restored after it.
//!
//! Three processes can restore them: the lab itself; if the lab was killed, the first process of its
//! PID namespace; if both were killed, the next lab started by root, from a record file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::sysctl;
use crate::LabError;

/// The record file. Only root can write in this directory, so root can trust its content.
const RECORD_FILE: &str = "/run/longhaul-lab.sysctls";

/// One changed setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SysctlChange {
    key: String,
    /// Value before the lab.
    before: String,
    /// Value set by the lab.
    during: String,
}

/// Settings to restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SysctlChanges(Vec<SysctlChange>);

/// Restores the settings when dropped.
#[derive(Debug, Default)]
pub(super) struct TemporarySysctls {
    changes: SysctlChanges,
}

impl TemporarySysctls {
    /// Sets the machine-wide settings that the hosts need. Setting the current value needs no root.
    ///
    /// # Errors
    /// [`LabError::Usage`]: two hosts need different values, or the kernel refuses one;
    /// [`LabError::Refused`]: not root. On an error no setting stays changed.
    pub(super) fn set(pairs: &[(String, String)]) -> Result<Self, LabError> {
        let mut changes = Vec::<SysctlChange>::new();
        for (key, value) in pairs {
            let during = sysctl::normalized(value);
            if let Some(other) = changes.iter().find(|c| &c.key == key) {
                if other.during == during {
                    continue;
                }
                return Err(LabError::Usage(format!(
                    "{key} exists once for the whole machine: hosts cannot have both '{}' and \
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
        let sysctls = Self {
            changes: SysctlChanges(changes),
        };
        if !sysctls.changes.0.is_empty() {
            sysctls.record()?;
            for SysctlChange { key, during, .. } in &sysctls.changes.0 {
                sysctl::set_machine(key, during)?;
            }
        }
        Ok(sysctls)
    }

    /// The changes, for the first process of the PID namespace.
    pub(super) fn changes(&self) -> &SysctlChanges {
        &self.changes
    }

    /// Writes the record file. This comes before the first change, so that no change is unrecorded.
    fn record(&self) -> Result<(), LabError> {
        let text = serde_json::to_string(&self.changes).map_err(std::io::Error::from);
        let written = text.and_then(|text| {
            OpenOptions::new()
                .write(true)
                // `create_new` refuses to overwrite the record of another lab, whose values would
                // be lost.
                .create_new(true)
                .mode(0o600)
                .open(RECORD_FILE)?
                .write_all(text.as_bytes())
        });
        written.map_err(|e| match e.kind() {
            ErrorKind::PermissionDenied => self.changes.not_root(),
            _ => LabError::system(format!("cannot write {RECORD_FILE}"), e),
        })
    }
}

impl Drop for TemporarySysctls {
    fn drop(&mut self) {
        self.changes.revert();
    }
}

impl SysctlChanges {
    /// Restores the settings that nobody else has changed since, and removes the record file.
    pub(super) fn revert(&self) {
        if self.0.is_empty() {
            return;
        }
        self.restore();
        if let Err(error) = std::fs::remove_file(RECORD_FILE)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::error!(%error, "cannot remove {RECORD_FILE}");
        }
    }

    fn not_root(&self) -> LabError {
        let commands: Vec<String> = self
            .0
            .iter()
            .map(|c| format!("sudo sysctl -w {}='{}'", c.key, c.during))
            .collect();
        LabError::Refused(format!(
            "only root may change a setting of the whole machine: run as root, or set it before with \
             `{}`",
            commands.join(" && ")
        ))
    }

    fn restore(&self) {
        for SysctlChange {
            key,
            before,
            during,
            // In reverse order, because a later setting may depend on an earlier one.
        } in self.0.iter().rev()
        {
            if sysctl::read(key).is_ok_and(|now| &now == during)
                && let Err(error) = sysctl::set_machine(key, before)
            {
                tracing::error!(%error, "cannot restore a setting of the machine");
            }
        }
    }
}

/// Whether a lab has changed settings and not restored them yet. That lab may still be running.
pub(super) fn has_record() -> bool {
    std::path::Path::new(RECORD_FILE).exists()
}

/// Restores the settings of a lab that was killed together with all its processes. The caller must
/// hold the lab lock.
///
/// # Errors
/// The record file cannot be read although this process is root, or is damaged.
pub(super) fn recover() -> Result<(), LabError> {
    let text = match std::fs::read_to_string(RECORD_FILE) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        Err(e) => return Err(LabError::system(format!("cannot read {RECORD_FILE}"), e)),
    };
    let changes: SysctlChanges = serde_json::from_str(&text).map_err(|e| {
        LabError::system(
            format!("{RECORD_FILE}, left by a killed lab, is damaged; remove it"),
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

    fn pairs(values: &[&str]) -> Vec<(String, String)> {
        let pair = |value: &&str| (KEY.to_owned(), (*value).to_owned());
        values.iter().map(pair).collect()
    }

    #[test]
    fn a_setting_that_has_the_value_already_is_not_changed() {
        let now = sysctl::read(KEY).unwrap();
        let sysctls = TemporarySysctls::set(&pairs(&[&now, &format!(" {now}\t")])).unwrap();
        assert_eq!(sysctls.changes, SysctlChanges::default());
    }

    #[test]
    fn hosts_with_different_values_are_refused_and_nothing_changes() {
        let before = sysctl::read(KEY).unwrap();
        let error = TemporarySysctls::set(&pairs(&["101", "102"])).unwrap_err();
        assert!(matches!(error, LabError::Usage(_)));
        assert!(error.to_string().contains("'101' and '102'"), "{error}");
        assert_eq!(sysctl::read(KEY).unwrap(), before);
    }

    #[test]
    fn a_setting_that_somebody_else_has_changed_is_not_restored() {
        let before = sysctl::read(KEY).unwrap();
        // As if the lab had set 103, and an administrator the current value.
        SysctlChanges(vec![SysctlChange {
            key: KEY.to_owned(),
            before: "104".to_owned(),
            during: "103".to_owned(),
        }])
        .restore();
        assert_eq!(sysctl::read(KEY).unwrap(), before);
    }

    #[test]
    fn the_error_without_root_contains_a_sysctl_command() {
        let changes = SysctlChanges(vec![SysctlChange {
            key: "net.core.rmem_max".to_owned(),
            before: "1".to_owned(),
            during: "2".to_owned(),
        }]);
        let error = changes.not_root().to_string();
        assert!(
            error.contains("`sudo sysctl -w net.core.rmem_max='2'`"),
            "{error}"
        );
    }
}
