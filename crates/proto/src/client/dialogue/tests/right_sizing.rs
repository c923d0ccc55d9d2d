//! OPTS DRS and DPSV in command lists.

use super::*;
use crate::client::NO_RIGHT_SIZING;

fn right_sizing() -> Dialogue {
    server(&[
        "PARALLEL",
        "SBUF",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;",
    ])
}

fn wish(sizing: Sizing) -> Need {
    let mut need = put(Mode::Stream, None);
    need.allocate = None;
    need.sizing = Some(sizing);
    need
}

fn opts(sizing: Sizing) -> Command {
    Command::Opts(Opts::Sizing(sizing))
}

#[test]
fn a_server_that_announces_nothing_is_asked_nothing() {
    for dialogue in [globus(), vsftpd(), pyftpdlib(), ancient(), longhaul()] {
        let plain = lines(&dialogue.plan(&wish(Sizing::Auto)));
        for sizing in Sizing::ALL {
            assert_eq!(lines(&dialogue.plan(&wish(sizing))), plain, "{sizing:?}");
            let agreed = match sizing {
                Sizing::Kernel => Sizing::Kernel,
                _ => Sizing::Auto,
            };
            assert_eq!(dialogue.agreed(sizing), agreed);
        }
        assert!(!dialogue.may_listen_for_drs());
    }
}

#[test]
fn a_fresh_login_has_the_servers_own_default() {
    let mut dialogue = right_sizing();
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Auto)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Kernel)),
        ["OPTS DRS kernel", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Auto)),
        ["<listen>", "STOR /f"]
    );
}

#[test]
fn a_pinned_size_needs_no_policy_unless_another_is_in_force() {
    let mut pinned = wish(Sizing::Kernel);
    pinned.buffer = Some(65_536);
    let mut dialogue = right_sizing();
    assert_eq!(
        run(&mut dialogue, &pinned),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
    let mut dialogue = right_sizing();
    run(&mut dialogue, &wish(Sizing::Drs1));
    assert_eq!(
        run(&mut dialogue, &pinned),
        ["OPTS DRS kernel", "SBUF 65536", "<listen>", "STOR /f"]
    );
}

#[test]
fn the_drs_channel_is_asked_for_once_a_session() {
    let mut dialogue = right_sizing();
    let drs = wish(Sizing::Drs);
    assert_eq!(
        run(&mut dialogue, &drs),
        ["OPTS DRS drs", "<drs>", "<listen>", "STOR /f"]
    );
    assert!(dialogue.may_listen_for_drs());
    assert_eq!(dialogue.drs(), Some(DrsEnd::Listens(drs_address(1))));
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);

    // A listing leaves everything as it is.
    let mut listing = get(&dialogue, Mode::Stream, None, &RangeSet::new());
    listing.sizing = None;
    assert_eq!(run(&mut dialogue, &listing), ["<listen>", "RETR /f"]);

    // What another server listens at is of no use to this machine.
    dialogue.drs_given(DrsEnd::Connects(drs_address(2)));
    assert_eq!(run(&mut dialogue, &drs), ["<drs>", "<listen>", "STOR /f"]);

    // Another policy ends it.
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(dialogue.drs(), None);
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
        run(&mut dialogue, &wish(Sizing::Drs1)),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Drs1)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(dialogue.drs(), None);
}

#[test]
fn refusals_of_right_sizing_are_told_once_and_harmless() {
    let mut dialogue = right_sizing();
    let drs = wish(Sizing::Drs);
    let first = dialogue.plan(&drs).into_iter().next();
    let refusal = Refusal::Warn(NO_RIGHT_SIZING);
    assert_eq!(first, Some(Step::Set(opts(Sizing::Drs), refusal)));
    dialogue.refused(&opts(Sizing::Drs));
    assert_eq!(dialogue.agreed(Sizing::Drs), Sizing::Auto);
    assert!(!dialogue.may_listen_for_drs());
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);
    // The other one was not refused.
    assert_eq!(
        run(&mut dialogue, &wish(Sizing::Drs1)),
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
    dialogue.accepted(&opts(Sizing::Drs));
    let drs = wish(Sizing::Drs);
    // What failed may succeed the next time; the other verb is another matter.
    dialogue.drs_failed();
    dialogue.refused(&Command::Dprt(drs_address(1)));
    assert!(dialogue.drs_connecting_refused() && !dialogue.drs_listening_refused());
    assert_eq!(run(&mut dialogue, &drs), ["<drs>", "<listen>", "STOR /f"]);
    dialogue.refused(&Command::Dpsv);
    assert!(!dialogue.may_listen_for_drs());
    assert_eq!(dialogue.drs(), None);
    assert_eq!(dialogue.agreed(Sizing::Drs), Sizing::Drs);
    assert_eq!(run(&mut dialogue, &drs), ["<listen>", "STOR /f"]);
}

#[test]
fn connections_of_another_policy_are_not_used_again() {
    let mut dialogue = right_sizing();
    let mut need = wish(Sizing::Auto);
    need.mode = Mode::Extended;
    need.reusable = true;
    run(&mut dialogue, &need);
    assert!(dialogue.reuses(&need));
    need.sizing = Some(Sizing::Drs1);
    assert_eq!(
        run(&mut dialogue, &need),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert!(dialogue.reuses(&need));
    need.buffer = Some(65_536);
    assert_eq!(
        run(&mut dialogue, &need),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
}
