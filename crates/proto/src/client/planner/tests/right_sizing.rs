//! OPTS DRS and DPSV in command lists.

use super::*;
use crate::client::RIGHT_SIZING_UNSUPPORTED;

fn right_sizing() -> CommandPlanner {
    server(&[
        "PARALLEL",
        "SBUF",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;",
    ])
}

fn wish(sizing: BufferSizing) -> TransferRequirements {
    let mut need = put(TransferMode::Stream, None);
    need.announced_size = None;
    need.buffer_sizing = Some(sizing);
    need
}

fn opts(sizing: BufferSizing) -> Command {
    Command::Opts(OptsCommand::BufferSizing(sizing))
}

#[test]
fn a_server_that_announces_nothing_is_asked_nothing() {
    for dialogue in [globus(), vsftpd(), pyftpdlib(), ancient(), longhaul()] {
        let plain = lines(&dialogue.plan(&wish(BufferSizing::Auto)));
        for sizing in BufferSizing::ALL {
            assert_eq!(lines(&dialogue.plan(&wish(sizing))), plain, "{sizing:?}");
            let agreed = match sizing {
                BufferSizing::Kernel => BufferSizing::Kernel,
                _ => BufferSizing::Auto,
            };
            assert_eq!(dialogue.agreed_sizing(sizing), agreed);
        }
        assert!(!dialogue.may_listen_for_drs());
    }
}

#[test]
fn a_fresh_login_has_the_servers_own_default() {
    let mut dialogue = right_sizing();
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Auto)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Kernel)),
        ["OPTS DRS kernel", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Auto)),
        ["<listen>", "STOR /f"]
    );
}

#[test]
fn a_pinned_size_needs_no_policy_unless_another_is_in_force() {
    let mut pinned = wish(BufferSizing::Kernel);
    pinned.buffer = Some(65_536);
    let mut dialogue = right_sizing();
    assert_eq!(
        run(&mut dialogue, &pinned),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
    let mut dialogue = right_sizing();
    run(&mut dialogue, &wish(BufferSizing::Drs1));
    assert_eq!(
        run(&mut dialogue, &pinned),
        ["OPTS DRS kernel", "SBUF 65536", "<listen>", "STOR /f"]
    );
}

#[test]
fn the_drs_channel_is_asked_for_once_a_session() {
    let mut dialogue = right_sizing();
    let drs = wish(BufferSizing::Drs);
    assert_eq!(
        run(&mut dialogue, &drs),
        ["OPTS DRS drs", "<drs>", "<listen>", "STOR /f"]
    );
    assert!(dialogue.may_listen_for_drs());
    assert_eq!(
        dialogue.drs_address(),
        Some(ServerDrsAddress::Listens(drs_address(1)))
    );
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);

    // A listing leaves everything as it is.
    let mut listing = get(&dialogue, TransferMode::Stream, None, &RangeSet::new());
    listing.buffer_sizing = None;
    assert_eq!(run(&mut dialogue, &listing), ["<listen>", "RETR /f"]);

    // What another server listens at is of no use to this machine.
    dialogue.set_drs_address(ServerDrsAddress::Connects(drs_address(2)));
    assert_eq!(run(&mut dialogue, &drs), ["<drs>", "<listen>", "STOR /f"]);

    // Another policy ends it.
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(dialogue.drs_address(), None);
    assert!(!dialogue.may_listen_for_drs());
    assert_eq!(
        run(&mut dialogue, &drs),
        ["OPTS DRS drs", "<drs>", "<listen>", "STOR /f"]
    );
}

#[test]
fn drs1_has_no_channel_of_its_own() {
    let mut dialogue = right_sizing();
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Drs1)),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Drs1)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(dialogue.drs_address(), None);
}

#[test]
fn refusals_of_right_sizing_are_told_once_and_harmless() {
    let mut dialogue = right_sizing();
    let drs = wish(BufferSizing::Drs);
    let first = dialogue.plan(&drs).into_iter().next();
    let refusal = RefusalEffect::Warn(RIGHT_SIZING_UNSUPPORTED);
    assert_eq!(first, Some(PlanStep::Set(opts(BufferSizing::Drs), refusal)));
    dialogue.on_refused(&opts(BufferSizing::Drs));
    assert_eq!(
        dialogue.agreed_sizing(BufferSizing::Drs),
        BufferSizing::Auto
    );
    assert!(!dialogue.may_listen_for_drs());
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);
    // The other one was not refused.
    assert_eq!(
        run(&mut dialogue, &wish(BufferSizing::Drs1)),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &drs),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
}

#[test]
fn a_refused_channel_is_not_asked_for_again() {
    let mut dialogue = right_sizing();
    dialogue.on_accepted(&opts(BufferSizing::Drs));
    let drs = wish(BufferSizing::Drs);
    // What failed may succeed the next time; the other verb is another matter.
    dialogue.clear_drs_address();
    dialogue.on_refused(&Command::Dprt(drs_address(1)));
    assert!(dialogue.is_drs_connecting_refused() && !dialogue.is_drs_listening_refused());
    assert_eq!(run(&mut dialogue, &drs), ["<drs>", "<listen>", "STOR /f"]);
    dialogue.on_refused(&Command::Dpsv);
    assert!(!dialogue.may_listen_for_drs());
    assert_eq!(dialogue.drs_address(), None);
    assert_eq!(dialogue.agreed_sizing(BufferSizing::Drs), BufferSizing::Drs);
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);
}

#[test]
fn connections_of_another_policy_are_not_used_again() {
    let mut dialogue = right_sizing();
    let mut need = wish(BufferSizing::Auto);
    need.mode = TransferMode::Extended;
    need.connections_reusable = true;
    run(&mut dialogue, &need);
    assert!(dialogue.reuses_connections(&need));
    need.buffer_sizing = Some(BufferSizing::Drs1);
    assert_eq!(
        run(&mut dialogue, &need),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert!(dialogue.reuses_connections(&need));
    need.buffer = Some(65_536);
    assert_eq!(
        run(&mut dialogue, &need),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
}
