//! The byte pump over loopback, by its public interface.

#[cfg(test)]
mod blocks;
#[cfg(test)]
mod early_end;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod protection;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod sizing;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod transfer_ends;
#[cfg(test)]
mod turns;
