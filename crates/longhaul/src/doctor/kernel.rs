//! Findings about the kernel's features for security.

use super::report::Finding;

/// Examines the kernel.
pub(super) fn examine() -> Vec<Finding> {
    of_kernel(&KernelSecurity::read())
}

/// Features of the kernel for security.
struct KernelSecurity {
    ktls: bool,
    landlock: bool,
    seccomp: bool,
}

impl KernelSecurity {
    fn read() -> Self {
        let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
        Self {
            ktls: data::os::ktls::available(),
            landlock: server::sandbox::can_confine_files(),
            seccomp: actions.is_ok_and(|actions| actions.contains("errno")),
        }
    }
}

/// The findings about the kernel. None is a problem: everything works without, with less.
fn of_kernel(kernel: &KernelSecurity) -> Vec<Finding> {
    let one = |name: &str, is_there: bool, advice: &str| match is_there {
        true => Finding::good(name, "available"),
        false => Finding::hint(name, "not available", advice),
    };
    let ktls = match kernel.ktls {
        true => "available, but not used: longhaul encrypts in its own processes",
        false => "not available; longhaul does not need it",
    };
    vec![
        Finding::note("kernel TLS", ktls),
        one(
            "Landlock",
            kernel.landlock,
            "the server cannot confine its file access: needs Linux 5.19 with lsm=landlock",
        ),
        one(
            "seccomp filters",
            kernel.seccomp,
            "the server cannot confine its system calls: needs CONFIG_SECCOMP_FILTER",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::FindingLevel;

    #[test]
    fn what_the_kernel_lacks_comes_with_advice() {
        let findings = of_kernel(&KernelSecurity {
            ktls: true,
            landlock: false,
            seccomp: false,
        });
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        assert_eq!(
            levels,
            [FindingLevel::Note, FindingLevel::Note, FindingLevel::Note]
        );
        // Data is never sent through it, so it must not be recommended.
        assert!(findings[0].line().contains("not used"));
        assert_eq!(findings[0].advice, None);
        assert!(findings[1].line().contains("lsm=landlock"));
    }
}
