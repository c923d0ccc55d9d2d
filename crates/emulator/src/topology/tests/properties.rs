//! Properties of arbitrary topologies.

use proptest::prelude::*;

use super::*;

/// A line of a table. Some lines exclude each other.
fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..60_000_000_000_u64).prop_map(|ns| format!("rtt = '{ns}ns'")),
        (0..30_000_000_000_u64).prop_map(|ns| format!("forward.delay = '{ns}ns'")),
        (1..1_000_000_000_000_u64).prop_map(|bits| format!("rate = {bits}")),
        (1..1_000_000_000_u64).prop_map(|bits| format!("back.rate = '{bits}bit'")),
        (1..100_000_u32).prop_map(|packets| format!("queue = {packets}")),
        (9000..100_000_000_u64).prop_map(|bytes| format!("back.queue = '{bytes}B'")),
        (0.0..1.0_f64).prop_map(|p| format!("loss = {p:?}")),
        (0.0..100.0_f64).prop_map(|p| format!("duplicate = '{p}%'")),
        (0.0..1.0_f64).prop_map(|p| format!("forward.corrupt = '{p}'")),
        (0.0..1.0_f64, 0..60_000_u64)
            .prop_map(|(p, extra)| format!("reorder = {{ probability = {p:?}, extra = {extra} }}")),
        (0.0..1.0_f64, 0.0..1.0_f64).prop_map(|(p, q)| format!(
            "back.burst_loss = {{ to_bad = {p:?}, to_good = {q:?}, in_good = 0, in_bad = '100%' }}"
        )),
        (0..4_u8).prop_map(|number| format!("routers = {number}")),
        (1..4_u8).prop_map(|link| format!("forward.bottleneck_link = {link}")),
        Just("back.routers = ['far', '*', 'r1']".to_owned()),
        Just("trace = 'drsftp-path'".to_owned()),
        (0..1_000_000_u64, 0.0..1.0_f64).prop_map(|(bits, loss)| format!(
            "trace = \"seconds,rate,loss\\n0,{bits},{loss}\\n1.25,7,\""
        )),
    ]
}

proptest! {
    #[test]
    fn a_written_topology_parses_to_the_same_topology(
        seed in any::<u64>(),
        mtu in 576..=9000_u16,
        lines in prop::collection::btree_set(any_line(), 0..4),
        special in prop::collection::btree_set(any_line(), 0..4),
    ) {
        let text = format!(
            "seed = '{seed}'\nmtu = {mtu}\ncc = 'cubic'\nsysctl.net.x = \"a 'b\\\" \\\\\"\n[default]\n{}\n\
             [hosts.a]\n[hosts.b]\n[hosts.c]\n[[paths]]\nbetween = ['c', 'b']\n{}",
            Vec::from_iter(lines).join("\n"),
            Vec::from_iter(special).join("\n"),
        );
        if let Ok(topology) = Topology::parse(&text, Path::new("")) {
            prop_assert_eq!(parse(&topology.to_toml()), topology);
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused_with_one_line(
        text in "\\PC*|([a-z_.]{1,9} ?= ?[0-9a-z'\"{},.%-]{0,12}\n|\\[{1,2}(default|paths|hosts\\.[a-c]|x)\\]{1,2}\n){0,8}"
    ) {
        if let Err(error) = Topology::parse(&text, Path::new("/nonexistent")) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_option_is_parsed_or_refused_with_one_line(value in any::<String>()) {
        let some = || Some(value.clone());
        for options in [
            NetworkOptions { rtt: some(), ..NetworkOptions::default() },
            NetworkOptions { rate: some(), ..NetworkOptions::default() },
            NetworkOptions { loss: some(), ..NetworkOptions::default() },
            NetworkOptions { queue: some(), ..NetworkOptions::default() },
            NetworkOptions { trace: some(), ..NetworkOptions::default() },
            NetworkOptions { routers: some(), ..NetworkOptions::default() },
            NetworkOptions { bottleneck_link: some(), ..NetworkOptions::default() },
            NetworkOptions { cc: some(), ..NetworkOptions::default() },
            NetworkOptions { sysctls: vec![value.clone()], ..NetworkOptions::default() },
        ] {
            if let Err(error) = Topology::from_options(None, &options) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
