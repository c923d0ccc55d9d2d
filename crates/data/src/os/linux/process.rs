//! Facts about this process.

use std::fs;

/// The permission bits that new files of this process do not get; `None` if the system does not tell. umask(2) cannot read
/// the mask without changing it, so it is read from /proc/self/status (proc(5)).
pub fn umask() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_umask_is_that_of_new_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("f")).unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o666 & !super::umask().unwrap());
    }
}
