//! Settings of the kernel by name (sysctl(3)).

use std::ffi::CStr;

/// Most bytes of a value that is read.
const MAX_VALUE: usize = 256;

/// A value as the kernel wrote it; `None`: there is none of this name.
fn value(name: &CStr) -> Option<Vec<u8>> {
    let mut bytes = vec![0; MAX_VALUE];
    let mut len = bytes.len();
    // SAFETY: the name ends with a zero; the kernel writes at most `len` bytes into `bytes`, and the length into `len`. No new
    // value is given.
    let result = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            bytes.as_mut_ptr().cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    bytes.truncate(len);
    (result == 0).then_some(bytes)
}

/// A text; `None` also if it is empty.
pub(super) fn text(name: &CStr) -> Option<String> {
    let bytes = value(name)?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8(text.to_vec()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// A number of 32 or 64 bits, not negative.
pub(super) fn number(name: &CStr) -> Option<u64> {
    let bytes = value(name)?;
    if let Ok(bytes) = <[u8; 4]>::try_from(&*bytes) {
        return u64::try_from(i32::from_ne_bytes(bytes)).ok();
    }
    let bytes = <[u8; 8]>::try_from(&*bytes).ok()?;
    u64::try_from(i64::from_ne_bytes(bytes)).ok()
}
