//! DCSC, DCAU, PBSZ and PROT before a transfer.

use super::*;
use crate::security::{
    DataChannelAuth, DataChannelProtection, DataCredential, ExchangeKind, ProtectionLevel, Secret,
};

fn protected(
    authentication: DataChannelAuth,
    level: ProtectionLevel,
    mode: TransferMode,
) -> TransferRequirements {
    TransferRequirements {
        protection: Some(DataChannelProtection {
            authentication,
            level,
        }),
        ..get(&globus(), mode, None, &RangeSet::new())
    }
}

/// FTPS: MODE S, passive.
fn ftps(level: ProtectionLevel) -> TransferRequirements {
    protected(DataChannelAuth::None, level, TransferMode::Stream)
}

/// GSI: MODE E; the server connects.
fn gsi(authentication: DataChannelAuth, level: ProtectionLevel) -> TransferRequirements {
    protected(authentication, level, TransferMode::Extended)
}

/// Accepts all settings of a plan.
fn accept_all(planner: &mut CommandPlanner, requirements: &TransferRequirements) {
    for step in planner.plan(requirements) {
        if let PlanStep::Set(command, _) = step {
            planner.on_accepted(&command);
        }
    }
}

#[test]
fn ftps_sends_pbsz_once_and_prot_when_it_changes() {
    let mut planner = vsftpd().with_security(ExchangeKind::Handshake);
    let private = ftps(ProtectionLevel::Private);
    assert_eq!(
        lines(&planner.plan(&private)),
        ["PBSZ 0", "PROT P", "<listen>", "RETR /f"]
    );
    accept_all(&mut planner, &private);
    assert_eq!(lines(&planner.plan(&private)), ["<listen>", "RETR /f"]);
    let clear = ftps(ProtectionLevel::Clear);
    assert_eq!(
        lines(&planner.plan(&clear)),
        ["PROT C", "<listen>", "RETR /f"]
    );
}

#[test]
fn prot_c_is_sent_too() {
    let planner = vsftpd().with_security(ExchangeKind::Handshake);
    let clear = ftps(ProtectionLevel::Clear);
    assert_eq!(lines(&planner.plan(&clear))[..2], ["PBSZ 0", "PROT C"]);
}

#[test]
fn a_clear_session_sends_nothing() {
    let requirements = get(&vsftpd(), TransferMode::Stream, None, &RangeSet::new());
    assert_eq!(
        lines(&vsftpd().plan(&requirements)),
        ["<listen>", "RETR /f"]
    );
}

#[test]
fn dcau_is_sent_when_it_is_not_a() {
    let mut planner = globus().with_security(ExchangeKind::Tokens);
    let default = gsi(DataChannelAuth::SelfAuth, ProtectionLevel::Clear);
    assert_eq!(
        lines(&planner.plan(&default))[..3],
        ["MODE E", "PBSZ 1048576", "PROT C"]
    );
    let none = gsi(DataChannelAuth::None, ProtectionLevel::Clear);
    assert_eq!(
        lines(&planner.plan(&none))[..4],
        ["MODE E", "DCAU N", "PBSZ 1048576", "PROT C"]
    );
    accept_all(&mut planner, &none);
    let subject = DataChannelAuth::Subject("/CN=x y".to_owned());
    let named = gsi(subject, ProtectionLevel::Private);
    assert_eq!(
        lines(&planner.plan(&named))[..2],
        ["DCAU S /CN=x y", "PROT P"]
    );
}

#[test]
fn dcau_follows_dcsc() {
    let mut planner = globus().with_security(ExchangeKind::Tokens);
    planner.use_data_credential(DataCredential::Pem(Secret(b"pem".to_vec())));
    let private = gsi(DataChannelAuth::SelfAuth, ProtectionLevel::Private);
    assert_eq!(
        lines(&planner.plan(&private))[..5],
        ["MODE E", "DCSC P cGVt", "DCAU A", "PBSZ 1048576", "PROT P"]
    );
    accept_all(&mut planner, &private);
    assert_eq!(lines(&planner.plan(&private))[0], "<connect>", "once");
    planner.use_data_credential(DataCredential::Default);
    assert_eq!(lines(&planner.plan(&private))[..2], ["DCSC D", "DCAU A"]);
}

/// A plan is made again while its steps are answered one by one.
#[test]
fn dcau_follows_dcsc_also_when_the_plan_is_made_again() {
    let mut planner = globus().with_security(ExchangeKind::Tokens);
    let credential = DataCredential::Pem(Secret(b"pem".to_vec()));
    planner.use_data_credential(credential.clone());
    planner.on_accepted(&Command::Dcsc(credential));
    let private = gsi(DataChannelAuth::SelfAuth, ProtectionLevel::Private);
    assert_eq!(lines(&planner.plan(&private))[1], "DCAU A");
}

#[test]
fn a_refused_protection_is_fatal_but_not_a_refused_pbsz() {
    let planner = globus().with_security(ExchangeKind::Tokens);
    let requirements = gsi(DataChannelAuth::None, ProtectionLevel::Clear);
    for step in planner.plan(&requirements) {
        let PlanStep::Set(command, refusal) = step else {
            continue;
        };
        let expected = match command {
            Command::Dcau(_) | Command::Prot(_) => RefusalEffect::Fatal,
            Command::Pbsz(_) => RefusalEffect::Ignore,
            _ => continue,
        };
        assert_eq!(refusal, expected, "{command:?}");
    }
    // PBSZ is not repeated after a refusal.
    let mut planner = planner;
    planner.on_refused(&Command::Pbsz(1 << 20));
    assert_eq!(
        lines(&planner.plan(&requirements))[..3],
        ["MODE E", "DCAU N", "PROT C"]
    );
}

#[test]
fn connections_are_not_reused_under_another_protection() {
    let mut planner = globus().with_security(ExchangeKind::Tokens);
    let requirements = |level| TransferRequirements {
        connections_reusable: true,
        ..gsi(DataChannelAuth::SelfAuth, level)
    };
    let (private, safe) = (
        requirements(ProtectionLevel::Private),
        requirements(ProtectionLevel::Safe),
    );
    accept_all(&mut planner, &private);
    planner.on_address_given(&private);
    planner.on_transferred();
    assert!(planner.reuses_connections(&private));
    assert!(!planner.reuses_connections(&safe));
    planner.on_accepted(&Command::Prot(ProtectionLevel::Safe));
    assert!(!planner.reuses_connections(&safe), "the address is void");
}

/// A server that refuses PROT P, but runs the RETR behind it, would send the file in the clear.
#[test]
fn the_transfer_waits_for_the_protection_in_a_pipeline() {
    let mut planner = longhaul()
        .with_pipelining()
        .with_security(ExchangeKind::Tokens);
    let private = gsi(DataChannelAuth::SelfAuth, ProtectionLevel::Private);
    let pipelined = |planner: &CommandPlanner| -> Vec<Vec<String>> {
        let pipelines = planner.pipelined_plan(&private);
        pipelines.iter().map(|pipeline| lines(pipeline)).collect()
    };
    let first = pipelined(&planner);
    assert_eq!(first.len(), 2, "{first:?}");
    assert!(first[0].contains(&"PROT P".to_owned()) && first[0].contains(&"<connect>".to_owned()));
    assert_eq!(first[1], ["RETR /f"]);
    accept_all(&mut planner, &private);
    assert_eq!(pipelined(&planner), [["<connect>", "RETR /f"]]);
}
