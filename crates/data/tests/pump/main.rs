//! The byte pump over loopback, by its public interface.

#[cfg(test)]
mod ends;
#[cfg(test)]
mod round_trip;
