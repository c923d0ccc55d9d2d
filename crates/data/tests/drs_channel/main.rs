//! Right-sizing over the DRS channel, by the public interface: two ends that keep the rules, and
//! one end whose peer does not. Whatever happens on that channel, the bytes arrive, in time.

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
