//! Buffer sizing over the DRS channel, by the public interface: two correct ends, and one end whose
//! peer violates the protocol. Whatever happens on that channel, all bytes arrive in time.

#[cfg(test)]
mod ends;
#[cfg(test)]
mod hostile_receiver;
#[cfg(test)]
mod hostile_sender;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod whole;
