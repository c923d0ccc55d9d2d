use data::rate::RateLimit;
use tune::Prior;

use super::*;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));
const RTT: Duration = Duration::from_millis(100);

fn evidence() -> Evidence {
    Evidence {
        bytes: 1 << 30,
        elapsed: Duration::from_secs(10),
        min_rtt: RTT,
        streams: 20,
        peak_streams: 20,
        final_streams: 20,
        ..Evidence::for_role(Role::Sender)
    }
}

fn tuned() -> TransferSettings {
    let mut settings = TransferSettings {
        mode: TransferMode::Extended,
        adapt: true,
        max_streams: 64,
        ..TransferSettings::default()
    };
    settings.options.congestion = CongestionChoice::Auto;
    settings
}

struct ServerTestMemory {
    _directory: tempfile::TempDir,
    history: PathHistory,
}

impl ServerTestMemory {
    /// The memory after a transfer to these peers with the settings.
    fn after(settings: &TransferSettings, peers: &[IpAddr]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let history = PathHistory::at(directory.path().join("paths.json"));
        let memory = TransferMemory::new(history.clone(), LOCAL, CLIENT, Some(CLIENT));
        memory.record(settings, peers, &evidence());
        Self {
            _directory: directory,
            history,
        }
    }

    fn known(&self, peer: IpAddr, control_rtt: Duration) -> Prior {
        let memory = TransferMemory::new(self.history.clone(), LOCAL, peer, Some(CLIENT));
        let mut settings = tuned();
        memory.apply(&mut settings, control_rtt);
        settings.prior
    }
}

#[test]
fn the_next_transfer_to_a_client_begins_as_the_last_one_ended() {
    let memory = ServerTestMemory::after(&tuned(), &[CLIENT, CLIENT]);
    assert_eq!(memory.known(CLIENT, RTT).streams, Some(20));
    assert_eq!(memory.known(CLIENT, RTT / 4), Prior::default());
    assert_eq!(memory.known(OTHER, RTT), Prior::default());
}

#[test]
fn a_third_party_transfer_teaches_about_the_other_host() {
    let memory = ServerTestMemory::after(&tuned(), &[OTHER]);
    assert_eq!(memory.known(CLIENT, RTT), Prior::default());
    // The client's round trip says nothing about the path to the other host.
    assert_eq!(memory.known(OTHER, RTT / 4).streams, Some(20));
    let several = ServerTestMemory::after(&tuned(), &[OTHER, CLIENT]);
    assert_eq!(several.known(OTHER, RTT), Prior::default());
}

#[test]
fn what_the_client_or_a_limit_chose_is_not_recorded() {
    let mut limited = tuned();
    limited.options.rate = Some(RateLimit::new(1 << 30));
    let mut named = tuned();
    named.options.congestion = CongestionChoice::Named("cubic".to_owned());
    let fixed = TransferSettings {
        adapt: false,
        ..tuned()
    };
    let stream_mode = TransferSettings {
        mode: TransferMode::Stream,
        ..tuned()
    };
    for settings in [limited, named, fixed, stream_mode] {
        let memory = ServerTestMemory::after(&settings, &[CLIENT]);
        assert_eq!(memory.known(CLIENT, RTT), Prior::default());
    }
}
