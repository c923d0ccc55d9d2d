//! Confinement of file access (Landlock, landlock(7)).

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};

use super::SandboxError;

/// The newest rights that are handled: renames across directories (2), truncation (3), device
/// controls (5), signals and abstract sockets of other processes (6). Older kernels handle what they know.
const NEWEST: ABI = ABI::V6;

/// Files and directories of the system that serving reads: accounts, host names, time zones,
/// certificate authorities, shared libraries of the name service, the kernel's network settings.
pub(super) const SYSTEM: &[&str] = &[
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/usr/local/share/ca-certificates",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/run/nscd",
    "/var/lib/sss",
    "/proc",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
];

/// Files and directories that a server may use; directories with all that they contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// For reading, besides those of the system.
    pub read: Vec<PathBuf>,
    /// For reading and writing.
    pub write: Vec<PathBuf>,
}

/// Whether this kernel can confine the files of a server. Nothing is restricted.
pub fn can_confine_files() -> bool {
    check_renames().is_ok()
}

/// Whether files can be confined without a loss for users. Before its second version (Linux 5.19) Landlock
/// has no right for renames from one directory to another, and refuses all of them.
///
/// # Errors
/// The kernel has no Landlock, or one that refuses such renames.
pub(super) fn check_renames() -> Result<(), SandboxError> {
    renames_are_permitted(
        handles(AccessFs::from_all(ABI::V1)),
        handles(AccessFs::Refer),
    )
}

fn renames_are_permitted(has_landlock: bool, has_refer: bool) -> Result<(), SandboxError> {
    match (has_landlock, has_refer) {
        (false, _) => Err(SandboxError::NoLandlock),
        (true, false) => Err(SandboxError::NoRenames),
        (true, true) => Ok(()),
    }
}

/// Whether the kernel knows all of these rights.
fn handles(rights: impl Into<BitFlags<AccessFs>>) -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights.into());
    ruleset.and_then(Ruleset::create).is_ok()
}

/// Restricts this process to `access`. Open descriptors stay usable.
pub(super) fn confine(access: &FileAccess) -> Result<(), SandboxError> {
    let failed = |error: landlock::RulesetError| SandboxError::Files(error.to_string());
    // The kernel must know Landlock at all; newer rights are used where it knows them.
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST) & !AccessFs::Execute;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(failed)?
        // No signals to, and no abstract sockets of, processes outside.
        .scope(Scope::from_all(NEWEST))
        .map_err(failed)?
        .create()
        .map_err(failed)?
        // Paths that do not exist are left out: nothing is there to be read.
        .add_rules(path_beneath_rules(SYSTEM, read))
        .map_err(failed)?
        .add_rules(path_beneath_rules(&access.read, read))
        .map_err(failed)?
        .add_rules(path_beneath_rules(&access.write, all & !AccessFs::Execute))
        .map_err(failed)?
        .restrict_self()
        .map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Landlock confines a thread and those that it starts, so a thread of its own can be tested.
    #[test]
    fn only_permitted_paths_can_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["root", "config", "secret", "root/dir"] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("f"), name).unwrap();
        }
        let access = FileAccess {
            read: vec![path("config"), path("missing")],
            write: vec![path("root")],
        };
        let paths = [path("root/f"), path("config/f"), path("secret/f")];
        let (new, moved) = (path("root/new"), path("root/dir/moved"));
        let confined = std::thread::spawn(move || {
            if let Err(SandboxError::NoLandlock) = confine(&access) {
                return None;
            }
            let readable = paths.each_ref().map(|path| std::fs::read(path).is_ok());
            let writable = paths
                .each_ref()
                .map(|path| std::fs::write(path, "changed").is_ok());
            let renamed = std::fs::write(&new, "x").is_ok()
                && std::fs::rename(&new, new.with_extension("y")).is_ok()
                && (check_renames().is_err()
                    || std::fs::rename(new.with_extension("y"), moved).is_ok());
            Some((readable, writable, renamed))
        });
        // A kernel without Landlock is not what this test is about.
        if let Some(done) = confined.join().unwrap() {
            assert_eq!(done, ([true, true, false], [true, false, false], true));
        }
        assert_eq!(std::fs::read(path("secret/f")).unwrap(), b"secret");
    }

    #[test]
    fn a_kernel_that_would_refuse_renames_between_directories_confines_no_files() {
        assert!(renames_are_permitted(true, true).is_ok());
        let none = renames_are_permitted(false, false).unwrap_err();
        assert!(matches!(none, SandboxError::NoLandlock), "{none}");
        let old = renames_are_permitted(true, false).unwrap_err().to_string();
        assert!(old.contains("renames") && old.contains("5.19"), "{old}");
    }
}
