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

/// Name of the constant, and number.
type PermittedCall = (&'static str, c_long);

/// Calls by the names of their constants.
macro_rules! calls {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name)),*] };
}

/// The calls of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct PermittedCalls {
    calls: &'static [&'static [PermittedCall]],
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
const COMMON: &[PermittedCall] = calls![
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_futex,
    SYS_sched_yield,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    // Where the clock is not one that the vDSO can read (vdso(7)).
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_clock_nanosleep,
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_openat,
    SYS_fcntl,
    SYS_recvfrom,
    SYS_sendto,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_exit,
    SYS_exit_group,
];

/// Threads, files below the roots, sockets, the change of account, name lookup.
const SERVING: &[PermittedCall] = calls![
    // A new thread.
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_getaffinity,
    SYS_prlimit64,
    SYS_sysinfo,
    // --run-as
    SYS_getgroups,
    SYS_setgroups,
    SYS_setgid,
    SYS_setuid,
    // The end of the process that holds the key.
    SYS_wait4,
    // Events.
    SYS_pipe2,
    SYS_eventfd2,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_ppoll,
    // Data of files.
    SYS_pwrite64,
    SYS_sendfile,
    SYS_splice,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_ftruncate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_syncfs,
    SYS_sync_file_range,
    SYS_flock,
    // Names of files.
    SYS_openat2,
    SYS_getcwd,
    SYS_readlinkat,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_symlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_umask,
    SYS_fchownat,
    SYS_utimensat,
    // Sockets.
    SYS_socketpair,
    SYS_bind,
    SYS_listen,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_shutdown,
    // getaddrinfo(3), getpwnam(3) and the modules that they load (nsswitch.conf(5)).
    SYS_uname,
    SYS_sendmmsg,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
];

/// Calls of x86-64 that newer architectures do not have. All others in this file are those of each architecture
/// with the generic table (asm-generic/unistd.h), as arm64.
#[cfg(target_arch = "x86_64")]
const OLD_COMMON: &[PermittedCall] = calls![
    SYS_open, SYS_stat, SYS_lstat, SYS_poll, // See `clock_gettime`.
    SYS_time,
];
/// The C library has only this call for poll(3) there.
#[cfg(not(target_arch = "x86_64"))]
const OLD_COMMON: &[PermittedCall] = calls![SYS_ppoll];

/// As [`OLD_COMMON`], for serving.
#[cfg(target_arch = "x86_64")]
const OLD_SERVING: &[PermittedCall] = calls![SYS_access, SYS_readlink, SYS_epoll_wait,];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SERVING: &[PermittedCall] = &[];

/// Options of descriptors (ioctl(2)): unread bytes, and whether reading waits.
#[allow(
    clippy::unnecessary_cast,
    reason = "the type of the numbers depends on the C library"
)]
const IOCTLS: &[u64] = &[libc::FIONREAD as u64, libc::FIONBIO as u64];

/// Options of the process (prctl(2)): the names of new threads.
const PRCTLS: &[u64] = &[libc::PR_SET_NAME as u64];

/// Families of sockets of which only [`INTERNET_TYPES`] are permitted.
const INTERNET_FAMILIES: &[u64] = &[libc::AF_INET as u64, libc::AF_INET6 as u64];

/// TCP, and UDP for the name service. Root could forge packets with raw sockets (raw(7)).
const INTERNET_TYPES: &[u64] = &[libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64];

/// The signal with which musl has each thread change its account (`SIGSYNCCALL` of its `pthread_impl.h`). It sends it
/// with tkill(2), which does not name the process.
#[cfg(target_env = "musl")]
const SYNCHRONISING_SIGNAL: u64 = 34;

/// The type of a socket without its flags (socket(2)).
const SOCKET_TYPE: u64 = !((libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32) as u64;

/// Restricts this thread, and those that it starts, to the permitted calls.
pub(super) fn filter(permitted: PermittedCalls) -> Result<(), SandboxError> {
    let program =
        program(permitted).map_err(|error| SandboxError::SystemCalls(error.to_string()))?;
    seccompiler::apply_filter(&program)
        .map_err(|error| SandboxError::SystemCalls(error.to_string()))
}

fn program(permitted: PermittedCalls) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (_, call) in permitted.calls.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    // Signals to threads of this process alone: abort(3), and setuid(2) in all threads (nptl(7)).
    let own = [u64::from(std::process::id())];
    rules.insert(libc::SYS_tgkill, one_of(0, &own)?);
    if permitted.serves {
        // clone3(2) takes its flags through memory, which a filter cannot read; without it the C
        // library uses clone(2), and only threads are permitted: no new processes.
        let thread = libc::CLONE_THREAD as u64;
        rules.insert(libc::SYS_clone, vec![any_of_masked(0, thread)?]);
        rules.insert(libc::SYS_socket, sockets()?);
        rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS)?);
        rules.insert(libc::SYS_prctl, one_of(0, PRCTLS)?);
        #[cfg(target_env = "musl")]
        rules.insert(libc::SYS_tkill, one_of(1, &[SYNCHRONISING_SIGNAL])?);
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}

/// The sockets that serving needs.
fn sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // The name service: unix sockets of nscd and resolved.
    let mut rules = one_of(0, &[libc::AF_UNIX as u64])?;
    // The list of addresses by which getaddrinfo(3) sorts (rtnetlink(7)).
    rules.push(SeccompRule::new(vec![
        equal(0, libc::AF_NETLINK as u64)?,
        equal(2, libc::NETLINK_ROUTE as u64)?,
    ])?);
    for family in INTERNET_FAMILIES {
        for socket_type in INTERNET_TYPES {
            let is_type = SeccompCondition::new(
                1,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::MaskedEq(SOCKET_TYPE),
                *socket_type,
            )?;
            rules.push(SeccompRule::new(vec![equal(0, *family)?, is_type])?);
        }
    }
    Ok(rules)
}

/// A rule per value that an argument may have.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |value: &u64| SeccompRule::new(vec![equal(argument, *value)?]);
    values.iter().map(rule).collect()
}

/// The condition that an argument has this value.
fn equal(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
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

    use rustix::fs::{CWD, renameat};

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
        let (threads, sockets, files, processes) = confined(SERVER, move || {
            let threads = std::thread::spawn(|| 7).join().unwrap() == 7;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sockets = TcpStream::connect(listener.local_addr().unwrap()).is_ok()
                && UdpSocket::bind("127.0.0.1:0").is_ok();
            let files = std::fs::write(&path, "x").is_ok()
                && renameat(CWD, &path, CWD, path.with_extension("y")).is_ok();
            let processes = Command::new("/bin/true").status().is_ok();
            (threads, sockets, files, processes)
        });
        assert!(threads && sockets && files);
        assert!(!processes);
    }

    /// A kernel refuses raw sockets to others than root by itself, with EPERM, so the error is compared.
    #[test]
    fn raw_and_packet_sockets_are_refused_by_the_filter() {
        use socket2::{Domain, Protocol, Socket, Type};
        let packet = Domain::from(libc::AF_PACKET);
        // SOCK_PACKET, the older form of a packet socket (socket(2)).
        let old_packet = Type::from(10);
        let audit = Some(Protocol::from(libc::NETLINK_AUDIT));
        let refused = [
            (Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)),
            (Domain::IPV4, Type::RAW.cloexec(), Some(Protocol::TCP)),
            (Domain::IPV4, Type::RAW.nonblocking(), Some(Protocol::UDP)),
            (Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)),
            (Domain::IPV4, old_packet, None),
            (packet, Type::RAW, None),
            (packet, Type::DGRAM, None),
            (Domain::from(libc::AF_NETLINK), Type::RAW, audit),
        ];
        let route = (Domain::from(libc::AF_NETLINK), Type::RAW, None);
        let (errors, route) = confined(SERVER, move || {
            let open = |(domain, kind, protocol)| Socket::new_raw(domain, kind, protocol);
            let errors = refused.map(|socket| open(socket).err().and_then(|e| e.raw_os_error()));
            (errors, open(route).is_ok())
        });
        assert_eq!(errors, [Some(libc::ENOSYS); 8]);
        assert!(route, "the list of addresses");
    }

    #[test]
    fn other_processes_cannot_be_signalled() {
        let parent = rustix::process::getppid().expect("a parent");
        let probed = confined(SERVER, move || rustix::process::test_kill_process(parent));
        assert_eq!(probed, Err(rustix::io::Errno::NOSYS));
    }

    /// docs/server.md promises the list to administrators.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_documented_lists_are_the_real_ones() {
        let document = include_str!("../../../../docs/server.md");
        let documented = |heading: &str| -> Vec<&str> {
            let (_, after) = document.split_once(heading).expect("the heading");
            let (list, _) = after.split_once("\n\n").expect("the end of the paragraph");
            list.split('`').skip(1).step_by(2).collect()
        };
        let names = |lists: &[&'static [PermittedCall]]| -> Vec<&str> {
            let calls = lists.iter().copied().flatten();
            let mut names: Vec<&str> = calls.map(|(name, _)| &name["SYS_".len()..]).collect();
            names.sort_unstable();
            names
        };
        let common = documented("**System calls of both processes:**");
        let mut own = vec!["tgkill"];
        own.extend(names(KEY_HOLDER.calls));
        own.sort_unstable();
        assert_eq!(common, own);
        let mut serving = names(&[SERVING, OLD_SERVING]);
        serving.extend(["clone", "ioctl", "prctl", "socket"]);
        serving.sort_unstable();
        assert_eq!(
            documented("**Of the process that serves, besides:**"),
            serving
        );
        let files = documented("**Files of the system, for reading:**");
        assert_eq!(files, super::super::files::SYSTEM);
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
