//! A receiver that ends before the sender does.

use std::sync::Arc;

use data::job::TransferControl;
use proto::command::TransferMode;

use crate::blocks::{DATA, block, connect, receive_with};
use crate::transfer_ends::{ANY, listen, settings};
use data::channel::AllowedPeers;

fn ends_at(offset: u64) -> Arc<TransferControl> {
    let control = TransferControl::new();
    control.end_at(offset);
    Arc::new(control)
}

#[test]
fn an_extended_transfer_ends_when_everything_before_its_early_end_is_stored() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let control = ends_at(5);
    let settings = settings(TransferMode::Extended);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        // Beyond the end: this connection is not read further, and does not end the others.
        let beyond = connect(address, &block(DATA, 8, b"ijk"));
        // The last block crosses the end. No end mark follows.
        let first = [block(DATA, 0, b"abc"), block(DATA, 3, b"defgh")].concat();
        (beyond, connect(address, &first))
    });
    let report = outcome.unwrap();
    assert!(report.ended_early);
    assert_eq!(report.stored.to_string(), "0-5");
    assert_eq!(stored.bytes(), b"abcde");
    assert!(!channel.has_cached(false));
}

#[test]
fn a_stream_is_cut_at_the_early_end() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let control = ends_at(4);
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        connect(address, b"abcdefgh")
    });
    assert!(outcome.unwrap().ended_early);
    assert_eq!(stored.bytes(), b"abcd");
}

#[test]
fn a_transfer_whose_sender_ends_first_is_no_early_end() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let control = ends_at(40);
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        drop(connect(address, b"abcd"));
    });
    assert!(!outcome.unwrap().ended_early);
    assert_eq!(stored.bytes(), b"abcd");
}

#[test]
fn an_end_that_is_set_is_not_replaced_by_a_later_one() {
    let control = ends_at(4);
    control.end_at_latest(9);
    assert_eq!(control.early_end(), Some(4));
    control.end_at(3);
    assert_eq!(control.early_end(), Some(3));
}
