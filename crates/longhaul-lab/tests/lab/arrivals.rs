//! Arrivals of datagrams at a receiver.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::harness::LabScriptRun;

/// Arrival of one datagram; times are nanoseconds of the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatagramArrival {
    /// Counted from 0 by the sender.
    pub(crate) sequence: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl DatagramArrival {
    /// Serialises arrivals, one per line.
    pub(crate) fn write(arrivals: &[Self]) -> String {
        let mut text = String::new();
        for Self {
            sequence,
            sent,
            received,
        } in arrivals
        {
            writeln!(text, "{sequence} {sent} {received}").unwrap();
        }
        text
    }

    fn read(line: &str) -> Self {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [sequence, sent, received] = words[..] else {
            panic!("{line}");
        };
        Self {
            sequence,
            sent,
            received,
        }
    }

    /// One-way delay, milliseconds.
    pub(crate) fn delay(&self) -> f64 {
        (self.received.saturating_sub(self.sent)) as f64 / 1e6
    }
}

impl LabScriptRun {
    /// Arrivals that `udp-receive` recorded, in order.
    pub(crate) fn arrivals(&self) -> Vec<DatagramArrival> {
        self.text("arrivals")
            .lines()
            .map(DatagramArrival::read)
            .collect()
    }
}

/// Number of datagrams that arrived after one that was sent later.
pub(crate) fn count_overtaken(arrivals: &[DatagramArrival]) -> usize {
    let mut latest = 0;
    arrivals
        .iter()
        .filter(|arrival| {
            let behind = arrival.sequence < latest;
            latest = latest.max(arrival.sequence);
            behind
        })
        .count()
}

/// The sequence numbers below `count` that did not arrive.
pub(crate) fn missing_numbers(arrivals: &[DatagramArrival], count: u64) -> Vec<u64> {
    let arrived: BTreeSet<u64> = arrivals.iter().map(|a| a.sequence).collect();
    (0..count).filter(|n| !arrived.contains(n)).collect()
}

/// Lengths of runs of consecutive numbers.
pub(crate) fn run_lengths(numbers: &[u64]) -> Vec<usize> {
    let mut runs: Vec<usize> = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if index > 0 && numbers[index - 1] + 1 == *number => *run += 1,
            _ => runs.push(1),
        }
    }
    runs
}
