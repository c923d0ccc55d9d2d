//! Findings from a stream's looks, for every policy that asks: its class, its rate, its round trip.

mod bottleneck;
mod hysteresis;
mod rate_meter;
mod stream_interval;

pub(crate) use bottleneck::{
    Bottleneck, BottleneckClassifier, ClassifiedInterval, explains_rate_by_send_buffer,
    fills_receive_window, is_receive_buffer_backed_up, is_send_buffer_full,
};
pub(crate) use hysteresis::Hysteresis;
pub(crate) use rate_meter::{RateMeter, Rtt};
pub(crate) use stream_interval::StreamInterval;
