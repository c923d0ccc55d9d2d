//! The transfer log has the final name of an upload, not the partial name under which longhaul's
//! client stores it.

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

/// The partial name of a file whose own name is too long for the suffix.
const HASHED: &str = "0123456789abcdef0123456789abcdef.longhaul-partial";

fn store(client: &mut ControlClient, name: &str) {
    let address = client.pasv();
    client.send(&format!("STOR {name}"));
    data_port::send_and_close(data_port::connect(address), b"content");
    client.expect_code(150);
    client.expect_code(226);
}

fn rename(client: &mut ControlClient, from: &str, to: &str) {
    client.expect_reply(&format!("RNFR {from}"), 350);
    client.expect_reply(&format!("RNTO {to}"), 250);
}

/// Runs sessions; returns `path` and `stored_as` of each record, and the classic log lines.
fn logged(sessions: impl FnOnce(&InProcessServer)) -> (Vec<(String, Option<String>)>, Vec<String>) {
    let scratch = tempfile::tempdir().unwrap();
    let (json, classic) = (scratch.path().join("json"), scratch.path().join("classic"));
    let server = InProcessServer::with_config(|config| {
        config.transfer_log = Some(json.clone());
        config.ftp_info_log = Some(classic.clone());
    });
    sessions(&server);
    server.request_stop();
    server.wait_for_end().unwrap();
    let records = std::fs::read_to_string(json).unwrap();
    let records = records.lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| record[key].as_str().map(str::to_owned);
        (text("path").unwrap(), text("stored_as"))
    });
    let classic = std::fs::read_to_string(classic).unwrap();
    (
        records.collect(),
        classic.lines().map(str::to_owned).collect(),
    )
}

#[test]
fn an_upload_is_logged_under_its_final_name() {
    let (records, classic) = logged(|server| {
        let mut client = server.anonymous_client();
        store(&mut client, "big.dat.longhaul-partial");
        rename(&mut client, "big.dat.longhaul-partial", "big.dat");
        store(&mut client, "plain");
    });
    let partial = Some("/big.dat.longhaul-partial".to_owned());
    assert_eq!(
        records,
        [
            ("/big.dat".to_owned(), partial),
            ("/plain".to_owned(), None)
        ]
    );
    assert!(classic[0].contains("/root/big.dat BUFFER="), "{classic:?}");
    assert!(
        classic[0].ends_with("/root/big.dat.longhaul-partial"),
        "{classic:?}"
    );
    assert!(!classic[1].contains("stored_as"), "{classic:?}");
}

#[test]
fn an_upload_under_a_hashed_name_is_logged_after_its_rename() {
    let long = "long".repeat(60);
    let (records, _) = logged(|server| {
        let mut client = server.anonymous_client();
        store(&mut client, HASHED);
        client.expect_reply("RNFR missing", 550);
        rename(&mut client, HASHED, &long);
        // Never renamed: logged at the next transfer, and at the end of the session.
        store(&mut client, HASHED);
        store(&mut client, "plain");
        store(&mut client, HASHED);
    });
    let stored_as = || Some(format!("/{HASHED}"));
    let hash = format!("/{}", HASHED.strip_suffix(".longhaul-partial").unwrap());
    assert_eq!(
        records,
        [
            (format!("/{long}"), stored_as()),
            (hash.clone(), stored_as()),
            ("/plain".to_owned(), None),
            (hash, stored_as()),
        ]
    );
}
