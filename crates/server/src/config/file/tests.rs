use data::options::TransferOptions;
use proto::sizing::SocketBuffers;

use super::*;
use crate::config::SecurityConfig;
use crate::passed_listeners::PassedListeners;
use crate::test_pipe::make_pipe;

fn load(text: &str) -> Result<ServerConfig, SettingsFileError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.toml");
    std::fs::write(&path, text).unwrap();
    let mut config = ServerConfig::default();
    FileConfig::load(&path)?.apply(&mut config);
    Ok(config)
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.toml");
    make_pipe(&path);
    let error = FileConfig::load(&path).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    let comment = "#".repeat(1 << 20);
    assert!(load(&comment).is_ok());
    let error = load(&format!("{comment}\n")).unwrap_err().to_string();
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
}

#[test]
fn an_empty_file_changes_nothing() {
    let (config, default) = (load("").unwrap(), ServerConfig::default());
    assert_eq!(format!("{config:?}"), format!("{default:?}"));
}

#[test]
fn every_setting_is_applied() {
    let config = load(concat!(
        "listen = \"[::]:3000\"\nroot = \"/srv\"\nanonymous = \"rw\"\nusers = \"/etc/u\"\n",
        "data-ports = \"50000-50010\"\npublic-address = \"192.0.2.1\"\n",
        "transfer-log = \"/t\"\nftp-info-log = \"/f\"\nhistory = \"/h\"\nthird-party = \"none\"\n",
        "foreign-data-addresses = true\nsandbox = \"required\"\n",
        "proxy-protocol-from = [\"192.0.2.0/24\"]\n",
        "max-sessions = 1\nmax-sessions-per-address = 2\nmax-sessions-per-user = 3\n",
        "max-streams = 4\nmax-streams-per-transfer = 5\nidle-timeout = 6\n",
        "login-timeout = 7\nstall-timeout = 8\ndrain = 9\nperf-marker-seconds = 10\n",
        "range-marker-seconds = 11\nblock = 65536\nio = \"copy\"\nsync-policy = \"none\"\nbuffer = \"kernel\"\n",
        "drs-interval = \"20ms\"\nrun-as = \"ftp\"\nmetrics = \"127.0.0.1:9464\"\n",
        "congestion = \"cubic\"\nclient-congestion = false\n",
        "max-transfers-per-address = 12\nmax-checksums = 13\nmax-listings = 14\n",
        "max-password-checks = 15\nmax-waiting-per-address = 16\nqueue-timeout = 17\n",
        "[advisor]\nconfig = \"/etc/advisor.toml\"\n",
    ))
    .unwrap();
    let expected = ServerConfig {
        listen: "[::]:3000".parse().unwrap(),
        root: "/srv".into(),
        anonymous: Some(Anonymous::Rw),
        users: Some("/etc/u".into()),
        data_ports: Some((50_000, 50_010)),
        public_address: Some("192.0.2.1".parse().unwrap()),
        transfer_log: Some("/t".into()),
        ftp_info_log: Some("/f".into()),
        history: HistoryLocation::File("/h".into()),
        third_party: ThirdPartyPolicy::None,
        foreign_data_addresses: true,
        max_sessions: 1,
        max_sessions_per_address: 2,
        max_sessions_per_user: 3,
        max_streams: 4,
        max_streams_per_transfer: 5,
        max_transfers_per_address: Some(12),
        max_checksums: Some(13),
        max_listings: 14,
        max_password_checks: Some(15),
        max_waiting_per_address: 16,
        queue_timeout: Duration::from_secs(17),
        idle_timeout: Duration::from_secs(6),
        login_timeout: Duration::from_secs(7),
        drain: Duration::from_secs(9),
        perf_marker_seconds: 10,
        range_marker_seconds: 11,
        transfer: TransferOptions {
            buffers: SocketBuffers::sized_by(BufferSizing::Kernel),
            drs_interval: DrsInterval::Fixed(Duration::from_millis(20)),
            congestion: CongestionChoice::Named("cubic".into()),
            io: IoMethod::Copy,
            block: 65_536,
            rate: None,
            stall: Duration::from_secs(8),
        },
        sync_policy: SyncPolicy::None,
        client_congestion: false,
        run_as: Some("ftp".into()),
        key_holder: None,
        advisor: Some("/etc/advisor.toml".into()),
        advisor_port: None,
        metrics: Some(([127, 0, 0, 1], 9464).into()),
        proxy_protocol_from: vec!["192.0.2.0/24".parse().unwrap()],
        passed: PassedListeners::default(),
        service_manager: None,
        sandbox: SandboxMode::Required,
        security: SecurityConfig::default(),
    };
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
}

#[test]
fn errors_name_the_line_and_the_value() {
    for (text, what) in [
        ("root = \"/\"\nrooot = \"/srv\"\n", "rooot"),
        ("\nidle-timeout = \"soon\"\n", "soon"),
        ("\ndata-ports = \"9-1\"\n", "9-1"),
        ("\nblock = 12\n", "12"),
        ("\nbuffer = \"drs\"\n", "drs"),
        ("\ndrs-interval = 20\n", "20"),
        ("\ndrs-interval = \"60s\"\n", "60s"),
        ("\nanonymous = \"yes\"\n", "yes"),
        ("\nclient-congestion = \"no\"\n", "no"),
        ("\ntls = \"on\"\n", "on"),
        ("\nclient-certs = \"some\"\n", "some"),
        ("[[token-issuer]]\nurll = \"u\"\n", "urll"),
        ("[advisor]\nconfigg = \"f\"\n", "configg"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains(what), "{error}");
    }
}
