//! Findings from a stream's looks, for every policy that asks: its class, its rate, its round trip.

mod class;
mod meter;
mod spell;
mod standing;

pub(crate) use class::{Class, Tally, Verdict, explains, fills_window, is_backed_up, is_pressed};
pub(crate) use meter::{Meter, Trip};
pub(crate) use spell::Spell;
pub(crate) use standing::Standing;
