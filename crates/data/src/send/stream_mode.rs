//! MODE S: the file is the connection (RFC 959 §3.4.1).

use std::sync::atomic::AtomicBool;

use super::Job;
use super::outlet::Outlet;
use crate::channel::Channel;
use crate::error::DataError;
use crate::wire::Wire;

/// Sends the job over one connection, in the caller's thread, and closes it.
pub(super) fn send(channel: &mut Channel, job: Job<'_>) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(job.transfer, job.settings)?;
    let go_on = || job.transfer.check().is_ok();
    let sent = job.sum.beside(go_on, || {
        let mut outlet = Outlet::new(Wire::new(job.transfer, stream.clone()), &job)?;
        outlet.send_supply(false, &AtomicBool::new(false))?;
        outlet.wire().finish_sending()
    });
    if sent.is_err() {
        stream.break_off();
    }
    sent.map(|()| job.sum.digest())
}
