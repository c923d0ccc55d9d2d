//! The filter of system calls (seccomp(2)).
//!
//! A call that is not permitted fails with ENOSYS, as on a kernel that does not know it: the C
//! library then takes its older way where it has one.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::SandboxError;

/// The calls of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct PermittedCalls {
    calls: &'static [&'static [c_long]],
    /// New threads, sockets, and the options of descriptors and of the process.
    serves: bool,
}

/// The process that serves.
pub(super) const SERVER: PermittedCalls = PermittedCalls {
    calls: &[COMMON, SERVING, OLD_COMMON, OLD_SERVING],
    serves: true,
};

/// The process that holds the private key.
pub(super) const KEY_HOLDER: PermittedCalls = PermittedCalls {
    calls: &[COMMON, OLD_COMMON],
    serves: false,
};

/// Memory, locks, signals, clocks, reading and writing.
const COMMON: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_fcntl,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Threads, files below the roots, sockets, the change of account.
const SERVING: &[c_long] = &[
    libc::SYS_set_tid_address,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getcwd,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_prlimit64,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getppid,
    // --run-as
    libc::SYS_setgroups,
    libc::SYS_setgid,
    libc::SYS_setuid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    // The end of the process that holds the key.
    libc::SYS_kill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_flock,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    // A program that was given its own filter may add another, never loosen it.
    libc::SYS_seccomp,
    libc::SYS_landlock_restrict_self,
];

/// Calls of x86-64 that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_COMMON: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_poll,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_COMMON: &[c_long] = &[];

/// As [`OLD_COMMON`], for serving.
#[cfg(target_arch = "x86_64")]
const OLD_SERVING: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SERVING: &[c_long] = &[];

/// Options of descriptors (ioctl(2)): terminals, unread and unsent bytes, shared blocks, file flags.
const IOCTLS: &[u64] = &[
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::TIOCOUTQ,
    FICLONE,
    FICLONERANGE,
];
/// `FICLONE` of linux/fs.h.
const FICLONE: u64 = 0x4004_9409;
/// `FICLONERANGE` of linux/fs.h.
const FICLONERANGE: u64 = 0x4020_940d;

/// Options of the process (prctl(2)): names of threads and of memory areas, and less rights.
const PRCTLS: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_VMA as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
    libc::PR_SET_DUMPABLE as u64,
    libc::PR_GET_DUMPABLE as u64,
    libc::PR_CAPBSET_READ as u64,
];

/// Families of sockets: TCP and the name service (unix sockets of nscd and resolved, the list of
/// addresses by which getaddrinfo(3) sorts).
const SOCKET_FAMILIES: &[u64] = &[
    libc::AF_INET as u64,
    libc::AF_INET6 as u64,
    libc::AF_UNIX as u64,
    libc::AF_NETLINK as u64,
];

/// Restricts this thread, and those that it starts, to the permitted calls.
pub(super) fn filter(permitted: PermittedCalls) -> Result<(), SandboxError> {
    let program =
        program(permitted).map_err(|error| SandboxError::SystemCalls(error.to_string()))?;
    seccompiler::apply_filter(&program)
        .map_err(|error| SandboxError::SystemCalls(error.to_string()))
}

fn program(permitted: PermittedCalls) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in permitted.calls.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    if permitted.serves {
        // clone3(2) takes its flags through memory, which a filter cannot read; without it the C
        // library uses clone(2), and only threads are permitted: no new processes.
        let thread = libc::CLONE_THREAD as u64;
        rules.insert(libc::SYS_clone, vec![any_of_masked(0, thread)?]);
        rules.insert(libc::SYS_socket, one_of(0, SOCKET_FAMILIES)?);
        rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS)?);
        rules.insert(libc::SYS_prctl, one_of(0, PRCTLS)?);
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}

/// A rule per value that an argument may have.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |value: &u64| {
        let equal =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)?;
        SeccompRule::new(vec![equal])
    };
    values.iter().map(rule).collect()
}

/// A rule for an argument that has these bits.
fn any_of_masked(argument: u8, bits: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let masked = SeccompCmpOp::MaskedEq(bits);
    let has = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, masked, bits)?;
    SeccompRule::new(vec![has])
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;

    use super::*;

    /// A filter holds for a thread and those that it starts, so it is tested in a thread of its own.
    fn confined<T: Send + 'static>(
        permitted: PermittedCalls,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        std::thread::spawn(move || {
            filter(permitted).unwrap();
            work()
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_server_has_threads_sockets_and_files_but_no_processes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (threads, sockets, files, processes, raw) = confined(SERVER, move || {
            let threads = std::thread::spawn(|| 7).join().unwrap() == 7;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sockets = TcpStream::connect(listener.local_addr().unwrap()).is_ok()
                && UdpSocket::bind("127.0.0.1:0").is_ok();
            let files = std::fs::write(&path, "x").is_ok()
                && std::fs::rename(&path, path.with_extension("y")).is_ok();
            let processes = Command::new("/bin/true").status().is_ok();
            let raw = socket2::Socket::new(
                socket2::Domain::from(libc::AF_PACKET),
                socket2::Type::RAW,
                None,
            )
            .is_ok();
            (threads, sockets, files, processes, raw)
        });
        assert!(threads && sockets && files);
        assert!(!processes && !raw);
    }

    #[test]
    fn a_key_holder_has_no_sockets_and_no_threads() {
        let (sockets, threads) = confined(KEY_HOLDER, || {
            let sockets = TcpListener::bind("127.0.0.1:0").is_ok();
            let threads = std::thread::Builder::new().spawn(|| ()).is_ok();
            (sockets, threads)
        });
        assert!(!sockets && !threads);
    }
}
