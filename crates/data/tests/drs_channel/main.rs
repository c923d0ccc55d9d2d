//! Buffer sizing over the DRS channel, by the public interface: two correct ends, and one end whose
//! peer violates the protocol. Whatever happens on that channel, all bytes arrive in time.

#[cfg(test)]
mod both_ends;
#[cfg(test)]
mod end_under_test;
#[cfg(test)]
mod hostile_receiver;
#[cfg(test)]
mod hostile_sender;
#[cfg(test)]
mod relay;
