use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_line_explains_the_limiter() {
    let mut account = BatchEvidence::default();
    account.add_transfer(&Evidence {
        bytes: 1_250_000_000,
        elapsed: seconds(10),
        streams: 4,
        peak_streams: 4,
        min_rtt: Duration::from_micros(50_100),
        buffer_bytes: 4 << 20,
        busy_time: seconds(10),
        rwnd_limited: Duration::from_millis(6200),
        wire_time: seconds(38),
        retransmits: 3,
        congestion_control: Some("cubic".to_owned()),
        ..Evidence::for_role(Role::Sender)
    });
    let finding = account.limiter_finding();
    assert_eq!(
        account.why_line(1e9, finding),
        "1.00 Gbit/s over 4 streams (cubic); limited by: receive window (62% of the time the \
         receiver's window was full); round trip 50.1 ms, buffers up to 4.0 MiB, 3 segments \
         retransmitted"
    );
}

#[test]
fn the_line_of_a_third_party_transfer_says_that_the_bytes_did_not_pass_here() {
    let mut account = BatchEvidence::default();
    let one = ThirdPartyStats {
        bytes: 125_000_000,
        elapsed: Duration::from_secs(1),
        streams: 4,
        markers: true,
    };
    account.add_third_party(&one);
    account.add_third_party(&one);
    let finding = account.limiter_finding();
    assert_eq!(finding.name(), "servers or path between them");
    assert_eq!(
        account.why_line(2_500.0, finding),
        "2.50 kbit/s over 4 streams between the servers; limited by: the servers or the path \
         between them (the bytes did not pass through this machine; the servers' \
         markers and replies show 1.00 Gbit/s during the transfers)"
    );
    let mut silent = BatchEvidence::default();
    silent.add_third_party(&ThirdPartyStats {
        streams: 1,
        markers: false,
        ..one
    });
    let line = silent.why_line(2_500.0, finding);
    assert!(line.contains("1 stream between"), "{line}");
    assert!(line.contains("MODE S the servers report nothing"), "{line}");
}

#[test]
fn the_last_remark_of_each_host_is_in_the_line() {
    let mut account = BatchEvidence::default();
    let remark = |host: Option<&str>, text: &str| HostRemark {
        host: host.map(str::to_owned),
        verdict: None,
        text: Some(text.to_owned()),
    };
    let none = Duration::ZERO;
    let both = vec![remark(None, "old"), remark(Some("h:21"), "raise x")];
    account.add_remarks(both, none);
    account.add_remarks(vec![remark(None, "raise y")], none);
    let line = account.why_line(0.0, account.limiter_finding());
    assert!(
        line.ends_with("; h:21: raise x; this machine: raise y"),
        "{line}"
    );
}

/// Adds the sender's report on a transfer of ten seconds.
fn add_sender_report(
    account: &mut BatchEvidence,
    host: Option<&str>,
    limiter: Limiter,
    remedy: Option<&str>,
) {
    let remark = HostRemark {
        host: host.map(str::to_owned),
        verdict: Some(tune::streams::auto::LimiterVerdict {
            limiter,
            streams: 4,
            congestion_control: "bbr".to_owned(),
            remedy: remedy.map(str::to_owned),
        }),
        text: None,
    };
    account.add_remarks(vec![remark], Duration::from_secs(10));
}

/// A get of ten seconds whose threads spent so many seconds in the store and in the socket.
fn received_transfer(store: u64, wire: u64) -> BatchEvidence {
    let mut account = BatchEvidence::default();
    account.add_transfer(&Evidence {
        bytes: 952_500_000,
        elapsed: seconds(10),
        streams: 4,
        peak_streams: 4,
        store_time: seconds(4 * store),
        wire_time: seconds(4 * wire),
        ..Evidence::for_role(Role::Receiver)
    });
    account
}

#[test]
fn the_limiter_of_a_get_is_the_one_that_the_sender_reports() {
    let mut account = received_transfer(0, 9);
    assert_eq!(account.limiter_finding().name(), "server cap");
    add_sender_report(&mut account, Some("h:21"), Limiter::Loss, None);
    let finding = account.limiter_finding();
    assert_eq!(finding.name(), "congestion window (loss)");
    assert_eq!(
        account.why_line(762e6, finding),
        "762 Mbit/s over 4 streams (bbr); limited by: congestion window (loss) (the path lost \
         segments)"
    );
}

#[test]
fn a_get_with_long_round_trips_names_both_causes_of_them() {
    let mut account = received_transfer(0, 9);
    let why = |account: &BatchEvidence| account.why_line(762e6, account.limiter_finding());
    assert!(
        why(&account).ends_with("for the server or the path)"),
        "{}",
        why(&account)
    );
    account.own_evidence.long_rtt_time = seconds(30);
    assert_eq!(account.limiter_finding().name(), "server cap");
    let expected =
        "for the server or the path: packets queued on a full path, or the server paused)";
    assert!(why(&account).ends_with(expected), "{}", why(&account));
}

#[test]
fn a_limiter_seen_only_by_the_receiver_precedes_the_window_that_it_fills() {
    let mut account = received_transfer(8, 1);
    add_sender_report(&mut account, Some("h:21"), Limiter::ReceiveWindow, None);
    assert_eq!(account.limiter_finding().name(), "store write");
    let mut account = received_transfer(8, 1);
    add_sender_report(&mut account, Some("h:21"), Limiter::StoreRead, None);
    assert_eq!(account.limiter_finding().name(), "store read");
    account.own_evidence.throttle_time = seconds(36);
    account.own_evidence.store_time = seconds(1);
    assert_eq!(account.limiter_finding().name(), "rate limit");
}

#[test]
fn an_unknown_limiter_of_the_sender_gives_way_to_this_ends_figures() {
    let mut account = received_transfer(0, 9);
    add_sender_report(&mut account, Some("h:21"), Limiter::Unknown, None);
    assert_eq!(account.limiter_finding().name(), "server cap");
}

#[test]
fn the_line_of_a_put_names_the_remedy() {
    let mut account = BatchEvidence::default();
    account.add_transfer(&Evidence {
        bytes: 1_250_000_000,
        elapsed: seconds(10),
        streams: 16,
        peak_streams: 16,
        busy_time: seconds(10),
        rwnd_limited: seconds(9),
        ..Evidence::for_role(Role::Sender)
    });
    let remedy = "an administrator can raise net.ipv4.tcp_rmem there";
    add_sender_report(&mut account, None, Limiter::ReceiveWindow, Some(remedy));
    assert_eq!(
        account.why_line(1e9, account.limiter_finding()),
        "1.00 Gbit/s over 16 streams, 4 at the end (bbr); limited by: receive window (90% of the \
         time the receiver's window was full); to change that: an administrator can raise \
         net.ipv4.tcp_rmem there"
    );
}

#[test]
fn the_sending_server_reports_the_limiter_of_a_third_party_transfer() {
    let mut account = BatchEvidence::default();
    account.add_third_party(&ThirdPartyStats {
        bytes: 125_000_000,
        elapsed: Duration::from_secs(1),
        streams: 4,
        markers: true,
    });
    add_sender_report(&mut account, Some("h:21"), Limiter::StoreRead, None);
    let finding = account.limiter_finding();
    assert_eq!(finding.name(), "store read");
    let line = account.why_line(1e9, finding);
    assert!(
        line.starts_with(
            "1.00 Gbit/s over 4 streams (bbr) between the servers; limited by: store read \
             (reported by the sending server: reading the file; the servers' markers"
        ),
        "{line}"
    );
}

#[test]
fn the_limiter_is_unknown_when_nothing_moved() {
    let account = BatchEvidence::default();
    let finding = account.limiter_finding();
    assert_eq!(finding.name(), "unknown");
    let line = account.why_line(0.0, finding);
    assert!(!line.contains("between"), "{line}");
}

#[test]
fn a_rate_limit_at_either_end_is_the_limiter_of_a_put() {
    let mut account = BatchEvidence::default();
    account.add_transfer(&Evidence {
        bytes: 1_250_000_000,
        elapsed: seconds(10),
        streams: 4,
        peak_streams: 4,
        busy_time: seconds(10),
        rwnd_limited: seconds(9),
        wire_time: seconds(38),
        ..Evidence::for_role(Role::Sender)
    });
    // The server reads slowly, and this end sees only its window.
    let remedy = "an administrator can raise net.ipv4.tcp_rmem there";
    for is_server_first in [true, false] {
        let mut account = account.clone();
        let server = (Some("h:21"), Limiter::RateLimit, None);
        let own = (None, Limiter::ReceiveWindow, Some(remedy));
        let reports = match is_server_first {
            true => [server, own],
            false => [own, server],
        };
        for (host, limiter, remedy) in reports {
            add_sender_report(&mut account, host, limiter, remedy);
        }
        let line = account.why_line(1e9, account.limiter_finding());
        let expected = "limited by: rate limit (the server's rate limit was reached)";
        assert!(line.ends_with(expected), "{line}");
    }
    account.own_evidence.wire_time = seconds(3);
    account.own_evidence.throttle_time = seconds(36);
    // A server that waits for this end may think what it likes.
    account.add_remarks(
        vec![HostRemark {
            host: Some("h:21".to_owned()),
            verdict: Some(tune::streams::auto::LimiterVerdict {
                limiter: Limiter::StoreWrite,
                streams: 4,
                congestion_control: String::new(),
                remedy: None,
            }),
            text: Some("To change that: buy a faster disk".to_owned()),
        }],
        Duration::ZERO,
    );
    let line = account.why_line(1e9, account.limiter_finding());
    assert!(
        line.contains("rate limit (90% of the time this machine waited for its rate limit)"),
        "{line}"
    );
    assert!(!line.contains("faster disk"), "{line}");
}
