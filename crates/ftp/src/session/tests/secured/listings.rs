//! Listings in sessions whose data connections cannot be protected.

use proto::security::ExchangeKind;

use super::*;
use crate::session::ListingUse;
use crate::session::secure::{ClientSessionSecurity, GsiSession};

const CAN_PROTECT: &str = "211-x\n SIZE\n DCAU\n DCSC P,D\n211 End";
const CANNOT: &str = "211-x\n SIZE\n DCAU\n211 End";

/// A session that counts as one of GSI, with a server that has these features and goes on with this script.
async fn grid_session(
    feat: &'static str,
    options: SecurityOptions,
    behind: Vec<ScriptedAction>,
) -> (ClientSession, ScriptedFtpServer, Warnings) {
    let mut script = login_script_with_feat(feat);
    script.extend(behind);
    let (fake, warnings) = start(Scheme::Ftp, options, script).await;
    let mut session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    let own = TestAuthority::new("/O=Test/CN=CA").user("Ada");
    session.security = ClientSessionSecurity::Gsi(GsiSession {
        own,
        delegated: false,
        description: "GSI".to_owned(),
        fingerprint: None,
    });
    let planner = session.planner.clone();
    session.planner = planner.with_security(ExchangeKind::Tokens);
    (session, fake, warnings)
}

/// A listing over a clear data connection.
fn clear_listing() -> Vec<ScriptedAction> {
    let mut script = command_and_reply("CWD", "250 ok");
    script.extend(command_and_reply("DCAU N", "200 ok"));
    script.extend(command_and_reply("PBSZ", "200 ok"));
    script.extend(command_and_reply("PROT C", "200 ok"));
    script.push(ExpectPassiveAndReply("PASV"));
    script.extend(command_and_reply("LIST", "150 ok"));
    script.push(SendData(
        b"drwxr-xr-x 2 u g 5 Jan 1 2020 .\r\n-rw-r--r-- 1 u g 5 Jan 1 2020 f\r\n".to_vec(),
    ));
    script.push(SendLine("226 done"));
    script
}

#[tokio::test]
async fn a_listing_that_cannot_be_protected_is_warned_about_and_deletes_nothing() {
    let options = SecurityOptions::default;
    let (mut session, fake, warnings) = grid_session(CANNOT, options(), clear_listing()).await;
    assert_eq!(session.list(b"/").await.unwrap().len(), 1);
    let warned = warnings.lock().join("|");
    assert!(warned.contains("could hide files"), "{warned}");
    assert!(warned.contains("--delegate limited"), "{warned}");
    // Before any command about data connections.
    session.set_listing_use(ListingUse::Deleting);
    let failure = session.list_tree(b"/", &mut |_| unreachable!()).await;
    assert!(matches!(failure, Ok(false)), "no MLSR");
    drop(session);
    fake.finish().await;
    let enters = command_and_reply("CWD", "250 ok");
    let (mut session, fake, warnings) = grid_session(CANNOT, options(), enters).await;
    session.set_listing_use(ListingUse::Deleting);
    let failure = session.list(b"/").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    for word in [
        "DCSC",
        "nothing is deleted",
        "--delegate limited",
        "--data-protection clear",
    ] {
        assert!(failure.to_string().contains(word), "{failure}");
    }
    assert!(warnings.lock().is_empty());
    drop(session);
    fake.finish().await;
}

#[tokio::test]
async fn clear_data_that_was_asked_for_by_name_is_trusted_without_a_word() {
    let options = SecurityOptions {
        data_protection: DataProtectionChoice::Clear,
        ..SecurityOptions::default()
    };
    let mut script = clear_listing();
    script.push(ExpectPassiveAndReply("PASV"));
    script.extend(command_and_reply("NLST", "502 no"));
    let (mut session, fake, warnings) = grid_session(CAN_PROTECT, options, script).await;
    session.set_listing_use(ListingUse::Deleting);
    assert_eq!(session.list(b"/").await.unwrap().len(), 1);
    assert!(warnings.lock().is_empty());
    drop(session);
    fake.finish().await;
}

/// Servers that have authentication and no encryption of data connections.
#[tokio::test]
async fn listings_do_without_the_privacy_that_a_server_refuses_and_the_user_is_told() {
    let refused = |then: Vec<ScriptedAction>| {
        let mut script = command_and_reply("CWD", "250 ok");
        script.extend(command_and_reply("DCSC P", "200 ok"));
        script.extend(command_and_reply("DCAU A", "200 ok"));
        script.extend(command_and_reply("PBSZ", "200 ok"));
        script.extend(command_and_reply("PROT P", "534 no"));
        script.extend(then);
        script
    };
    let mut goes_on = command_and_reply("PROT C", "200 ok");
    goes_on.extend(command_and_reply("PASV", "421 that is enough"));
    let options = SecurityOptions::default;
    let (mut session, fake, warnings) =
        grid_session(CAN_PROTECT, options(), refused(goes_on)).await;
    let failure = session.list(b"/").await.unwrap_err();
    assert!(failure.to_string().contains("that is enough"), "{failure}");
    let warned = warnings.lock().join("|");
    assert!(
        warned.contains("PROT P") && !warned.contains("--delegate"),
        "{warned}"
    );
    drop(session);
    fake.finish().await;
    let (mut session, fake, _) = grid_session(CAN_PROTECT, options(), refused(Vec::new())).await;
    session.set_listing_use(ListingUse::Deleting);
    let failure = session.list(b"/").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(
        failure.to_string().contains("nothing is deleted"),
        "{failure}"
    );
    drop(session);
    fake.finish().await;
    // Asked for by name, it is had, or nothing moves.
    let options = SecurityOptions {
        data_protection: DataProtectionChoice::Private,
        ..options()
    };
    let (mut session, fake, _) = grid_session(CAN_PROTECT, options, refused(Vec::new())).await;
    let failure = session.list(b"/").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(
        failure
            .to_string()
            .contains("refuses protected data connections"),
        "{failure}"
    );
    drop(session);
    fake.finish().await;
}

#[tokio::test]
async fn the_credential_of_a_run_makes_listings_private_and_leaves_files_authenticated() {
    let (mut session, fake, _) =
        grid_session(CAN_PROTECT, SecurityOptions::default(), Vec::new()).await;
    use crate::session::DataPurpose::{Files, Listings};
    use proto::security::ProtectionLevel;
    for _ in 0..2 {
        for (purpose, level) in [
            (Listings, ProtectionLevel::Private),
            (Files, ProtectionLevel::Clear),
        ] {
            let agreed = session
                .agree_data_protection(purpose)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(agreed.level, level);
            assert!(session.local_data_security().unwrap().is_some());
        }
    }
    let in_force = fake.server.security.in_force();
    assert_eq!(
        in_force,
        "GSI GSI, data authenticated by a credential of this run, listings private"
    );
    drop(session);
    fake.finish().await;
}
