//! MODE S: the file is the connection (RFC 959 §3.4.1).

use std::sync::atomic::AtomicBool;

use super::SendTask;
use super::outlet::Outlet;
use crate::channel::Channel;
use crate::error::DataError;
use crate::wire::Wire;

/// Sends the task over one connection, in the caller's thread, and closes it.
pub(super) fn send(channel: &mut Channel, task: SendTask<'_>) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(task.transfer, task.settings)?;
    let go_on = || task.transfer.check().is_ok();
    let sent = task.sum.beside(go_on, || {
        let mut outlet = Outlet::new(Wire::new(task.transfer, stream.clone()), &task);
        outlet.send_supply(false, &AtomicBool::new(false))?;
        outlet.wire().finish_sending()
    });
    if sent.is_err() {
        stream.break_off();
    }
    sent.map(|()| task.sum.digest())
}
