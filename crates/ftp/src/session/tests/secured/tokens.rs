//! Bearer tokens as passwords.

use super::*;

fn token_options(identity: &TestIdentity) -> SecurityOptions {
    use std::os::unix::fs::PermissionsExt;
    let path = identity.folder.path().join("token");
    std::fs::write(&path, "eyJhbGciOi").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    SecurityOptions {
        token: Some(path),
        ..identity.trusting()
    }
}

#[tokio::test]
async fn a_token_is_the_password_of_the_bearer_user() {
    let identity = TestIdentity::new("127.0.0.1");
    let feat = "211-Features\n BEARER USER=:bearer:;\n211 End";
    let mut script = greeting_with_tls(&identity);
    script.extend(command_and_reply("FEAT", feat));
    script.extend(command_and_reply("USER :bearer:", "331 token"));
    script.extend(command_and_reply("PASS eyJhbGciOi", "230 in"));
    script.extend(command_and_reply("FEAT", feat));
    script.extend(command_and_reply("TYPE I", "200 ok"));
    script.extend(command_and_reply("PBSZ 0", "200 ok"));
    script.extend(command_and_reply("PROT P", "200 ok"));
    let (mut fake, _) = start(Scheme::Ftps, token_options(&identity), script).await;
    fake.server.credential = fake.server.security.token_for(Scheme::Ftps).unwrap();
    ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn a_token_is_not_sent_to_a_server_that_does_not_announce_tokens() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = greeting_with_tls(&identity);
    script.extend(command_and_reply("FEAT", "211-Features\n SIZE\n211 End"));
    script.push(ScriptedAction::ExpectEof);
    let (mut fake, _) = start(Scheme::Ftps, token_options(&identity), script).await;
    fake.server.credential = fake.server.security.token_for(Scheme::Ftps).unwrap();
    let failure = ClientSession::open(&fake.server, TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(failure.to_string().contains("--token"), "{failure}");
    fake.finish().await;
}
