//! OPTS DRS and DPSV in plans.

use super::*;
use crate::client::RIGHT_SIZING_UNSUPPORTED;

fn right_sizing() -> CommandPlanner {
    server(&[
        "PARALLEL",
        "SBUF",
        "REST STREAM",
        "DRS auto;kernel;drs1;drs;drs2004;",
    ])
}

fn requiring(sizing: BufferSizing) -> TransferRequirements {
    let mut requirements = put(TransferMode::Stream, None);
    requirements.announced_size = None;
    requirements.buffer_sizing = Some(sizing);
    requirements
}

fn opts(sizing: BufferSizing) -> Command {
    Command::Opts(OptsCommand::BufferSizing(sizing))
}

#[test]
fn opts_drs_is_not_sent_to_a_server_that_does_not_announce_it() {
    for planner in [globus(), vsftpd(), pyftpdlib(), ancient(), longhaul()] {
        let plain = lines(&planner.plan(&requiring(BufferSizing::Auto)));
        for sizing in BufferSizing::ALL {
            assert_eq!(
                lines(&planner.plan(&requiring(sizing))),
                plain,
                "{sizing:?}"
            );
            let agreed = match sizing {
                BufferSizing::Kernel => BufferSizing::Kernel,
                _ => BufferSizing::Auto,
            };
            assert_eq!(planner.agreed_sizing(sizing), agreed);
        }
        assert!(!planner.may_listen_for_drs());
    }
}

#[test]
fn abuf_asks_servers_that_announce_it_and_nothing_else_once() {
    let mut planner = server(&["PARALLEL", "SBUF", "ABUF", "REST STREAM"]);
    let auto = requiring(BufferSizing::Auto);
    assert_eq!(run(&mut planner, &auto), ["ABUF", "<listen>", "STOR /f"]);
    assert_eq!(run(&mut planner, &auto), ["<listen>", "STOR /f"]);
    let mut refused = server(&["ABUF"]);
    refused.on_refused(&Command::Abuf);
    assert_eq!(lines(&refused.plan(&auto)), ["<listen>", "STOR /f"]);
    let pinned = TransferRequirements {
        buffer: Some(65_536),
        ..auto.clone()
    };
    let planner = server(&["SBUF", "ABUF"]);
    assert!(!lines(&planner.plan(&pinned)).contains(&"ABUF".to_owned()));
    let own = server(&["ABUF", "DRS auto;kernel;drs1;drs;drs2004;"]);
    assert!(!lines(&own.plan(&auto)).contains(&"ABUF".to_owned()));
}

#[test]
fn opts_drs_auto_is_not_sent_after_a_fresh_login() {
    let mut planner = right_sizing();
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Auto)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Kernel)),
        ["OPTS DRS kernel", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Auto)),
        ["<listen>", "STOR /f"]
    );
}

#[test]
fn a_pinned_size_needs_opts_drs_only_if_another_sizing_is_in_force() {
    let mut pinned = requiring(BufferSizing::Kernel);
    pinned.buffer = Some(65_536);
    let mut planner = right_sizing();
    assert_eq!(
        run(&mut planner, &pinned),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
    let mut planner = right_sizing();
    run(&mut planner, &requiring(BufferSizing::Drs1));
    assert_eq!(
        run(&mut planner, &pinned),
        ["OPTS DRS kernel", "SBUF 65536", "<listen>", "STOR /f"]
    );
}

#[test]
fn the_drs_address_is_requested_once_per_session() {
    let mut planner = right_sizing();
    let drs = requiring(BufferSizing::Drs);
    assert_eq!(
        run(&mut planner, &drs),
        ["OPTS DRS drs", "<drs>", "<listen>", "STOR /f"]
    );
    assert!(planner.may_listen_for_drs());
    assert_eq!(
        planner.drs_address(),
        Some(ServerDrsAddress::Listens(drs_address(1)))
    );
    assert_eq!(run(&mut planner, &drs), ["<listen>", "STOR /f"]);
    // The published estimates use the same channel.
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Drs2004)),
        ["OPTS DRS drs2004", "<listen>", "STOR /f"]
    );
    assert!(planner.may_listen_for_drs());
    assert_eq!(
        run(&mut planner, &drs),
        ["OPTS DRS drs", "<listen>", "STOR /f"]
    );

    // A listing has no requirements on buffer sizing.
    let mut listing = get(&planner, TransferMode::Stream, None, &RangeSet::new());
    listing.buffer_sizing = None;
    assert_eq!(run(&mut planner, &listing), ["<listen>", "RETR /f"]);

    // An address of another server (DPRT) is useless for a transfer with this client.
    planner.set_drs_address(ServerDrsAddress::Connects(drs_address(2)));
    assert_eq!(run(&mut planner, &drs), ["<drs>", "<listen>", "STOR /f"]);

    // Another sizing drops the DRS address.
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Auto)),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
    assert_eq!(planner.drs_address(), None);
    assert!(!planner.may_listen_for_drs());
    assert_eq!(
        run(&mut planner, &drs),
        ["OPTS DRS drs", "<drs>", "<listen>", "STOR /f"]
    );
}

#[test]
fn drs1_needs_no_drs_address() {
    let mut planner = right_sizing();
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Drs1)),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Drs1)),
        ["<listen>", "STOR /f"]
    );
    assert_eq!(planner.drs_address(), None);
}

#[test]
fn refused_right_sizing_warns_once_and_falls_back_to_auto() {
    let mut planner = right_sizing();
    let drs = requiring(BufferSizing::Drs);
    let first = planner.plan(&drs).into_iter().next();
    let refusal = RefusalEffect::Warn(RIGHT_SIZING_UNSUPPORTED);
    assert_eq!(first, Some(PlanStep::Set(opts(BufferSizing::Drs), refusal)));
    planner.on_refused(&opts(BufferSizing::Drs));
    assert_eq!(planner.agreed_sizing(BufferSizing::Drs), BufferSizing::Auto);
    assert!(!planner.may_listen_for_drs());
    assert_eq!(run(&mut planner, &drs), ["<listen>", "STOR /f"]);
    // The refusal of drs does not affect drs1.
    assert_eq!(
        run(&mut planner, &requiring(BufferSizing::Drs1)),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert_eq!(
        run(&mut planner, &drs),
        ["OPTS DRS auto", "<listen>", "STOR /f"]
    );
}

#[test]
fn a_refused_drs_address_is_not_requested_again() {
    let mut planner = right_sizing();
    planner.on_accepted(&opts(BufferSizing::Drs));
    let drs = requiring(BufferSizing::Drs);
    // A failed DPSV may succeed next time, and a refusal of DPRT does not affect DPSV.
    planner.clear_drs_address();
    planner.on_refused(&Command::Dprt(drs_address(1)));
    assert!(planner.is_drs_connecting_refused() && !planner.is_drs_listening_refused());
    assert_eq!(run(&mut planner, &drs), ["<drs>", "<listen>", "STOR /f"]);
    planner.on_refused(&Command::Dpsv);
    assert!(!planner.may_listen_for_drs());
    assert_eq!(planner.drs_address(), None);
    assert_eq!(planner.agreed_sizing(BufferSizing::Drs), BufferSizing::Drs);
    assert_eq!(run(&mut planner, &drs), ["<listen>", "STOR /f"]);
}

#[test]
fn another_buffer_sizing_needs_new_connections() {
    let mut planner = right_sizing();
    let mut requirements = requiring(BufferSizing::Auto);
    requirements.mode = TransferMode::Extended;
    requirements.connections_reusable = true;
    run(&mut planner, &requirements);
    assert!(planner.reuses_connections(&requirements));
    requirements.buffer_sizing = Some(BufferSizing::Drs1);
    assert_eq!(
        run(&mut planner, &requirements),
        ["OPTS DRS drs1", "<listen>", "STOR /f"]
    );
    assert!(planner.reuses_connections(&requirements));
    requirements.buffer = Some(65_536);
    assert_eq!(
        run(&mut planner, &requirements),
        ["SBUF 65536", "<listen>", "STOR /f"]
    );
}
