//! Decision of one end of a stream.

use crate::observation::Bottleneck;
use crate::sizing::BufferSetting;

/// Decision of one end, before it has a stream and a time.
#[derive(Debug)]
pub(super) struct BufferAction {
    pub(super) setting: Option<BufferSetting>,
    pub(super) bottleneck: Bottleneck,
    pub(super) reason: String,
}
