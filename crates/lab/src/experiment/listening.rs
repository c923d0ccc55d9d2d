//! Whether a server accepts connections yet, as the kernel's tables tell, without a connection.

use std::path::PathBuf;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Whether something listens on TCP `port` in the network namespace of process `id`. With
/// `elsewhere` that namespace must be another one than this process's: before a process has
/// entered its host, it still sees ours.
pub(crate) fn on(id: u32, port: u16, elsewhere: bool) -> bool {
    if elsewhere && namespace(&id.to_string()) == namespace("self") {
        return false;
    }
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{id}/net/{table}"))
            .is_ok_and(|text| listens(&text, port))
    })
}

fn namespace(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Whether a table as in `/proc/net/tcp` has a listening socket on `port`.
fn listens(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
        0: 0100007F:0AFB 00000000:0000 0A 00000000:00000000 00:00000000 0\n   \
        1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 0\n";

    #[test]
    fn only_listening_sockets_count() {
        assert!(listens(TABLE, 2811));
        assert!(!listens(TABLE, 8080), "connected, not listening");
        assert!(!listens(TABLE, 0xC001), "the other end");
        assert!(!listens("", 2811));
    }

    #[test]
    fn an_own_listener_is_seen_here_and_not_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(on(std::process::id(), port, false));
        assert!(!on(std::process::id(), port, true));
        drop(listener);
        assert!(!on(std::process::id(), port, false));
    }
}
