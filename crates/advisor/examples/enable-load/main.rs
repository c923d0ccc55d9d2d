//! Load of the service: what the tests of 500 hosts cost, and how fast questions are answered with 100 000 hosts
//! in the database.
//!
//! ```sh
//! cargo build --release -p longhaul -p advisor --bins --examples
//! target/release/examples/enable-load tests target/release/longhaul
//! target/release/examples/enable-load questions target/release/longhaul
//! ```
//!
//! `tests [HOSTS]` has the service run each test once against addresses 127.x.y.z, one after the other without
//! pause, and scales its processor time and bytes to one run of each test in four hours, as in section 6 of the
//! paper. It needs the right to open ICMP sockets (root, or net.ipv4.ping_group_range).
//! Bottleneck tests wait while the processors are busy, and send more the faster the path is: shape the loopback of
//! a network namespace of its own (`ip link set lo mtu 1500 up; tc qdisc add dev lo root tbf rate 100mbit burst 8k
//! latency 200ms`: a packet larger than the burst is never sent).
//!
//! `questions [HOSTS [PER-SECOND [SECONDS]]]` fills an SQLite database, starts the service on it and asks for advice
//! about random hosts over 64 kept connections, by XML-RPC and by JSON in turn. Requests are due at random times,
//! whether or not earlier ones were answered, and their latency counts from then. A lone service answers: run it on a
//! machine that is idle otherwise.

#![allow(clippy::print_stdout, reason = "the result goes to standard output")]

use std::error::Error;
use std::path::Path;

mod database;
mod measured_service;
mod questions;
mod tests_of_hosts;

type AnyError = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |place: usize, usual: u32| -> Result<u32, AnyError> {
        Ok(words.get(place).map_or(Ok(usual), |word| word.parse())?)
    };
    match words[..] {
        ["tests", program, ..] => tests_of_hosts::measure(Path::new(program), number(2, 500)?),
        ["questions", program, ..] => {
            let load = questions::QuestionLoad {
                hosts: number(2, 100_000)?,
                per_second: number(3, 1000)?,
                seconds: number(4, 30)?,
            };
            questions::measure(Path::new(program), load)
        }
        _ => {
            Err("usage: enable-load tests|questions LONGHAUL [HOSTS [PER-SECOND [SECONDS]]]".into())
        }
    }
}
