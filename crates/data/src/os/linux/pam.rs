//! Questions to PAM, the login modules of the system (pam(3)).
//!
//! Its library is loaded at run time: a program that was linked with it would not start on a system
//! without PAM, and would need its headers to be built. Modules can do anything to the process that
//! asks, so this belongs into a process of its own.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use proto::command::Secret;

/// Linux-PAM's library; the number is that of its binary interface.
const LIBRARY: &CStr = c"libpam.so.0";
/// Terminal of a login, as other FTP servers name it: for pam_access(8) and pam_time(8).
const TERMINAL: &CStr = c"ftp";
/// Most messages in one call of the conversation (`PAM_MAX_NUM_MSG`).
const MAX_MESSAGES: usize = 32;
/// Longest text of a refusal, characters.
const MAX_TEXT: usize = 200;

// `_pam_types.h` of Linux-PAM.
const PAM_SUCCESS: c_int = 0;
const PAM_SYSTEM_ERR: c_int = 4;
const PAM_BUF_ERR: c_int = 5;
const PAM_CONV_ERR: c_int = 19;
const PAM_PROMPT_ECHO_OFF: c_int = 1;
const PAM_ERROR_MSG: c_int = 3;
const PAM_TEXT_INFO: c_int = 4;
const PAM_USER: c_int = 2;
const PAM_TTY: c_int = 3;
const PAM_RHOST: c_int = 4;
const PAM_FAIL_DELAY: c_int = 10;
const PAM_DISALLOW_NULL_AUTHTOK: c_int = 1;
const PAM_SILENT: c_int = 0x8000;

/// A transaction (`pam_handle_t`).
type Handle = *mut c_void;
/// `struct pam_message`
#[repr(C)]
struct PamMessage {
    style: c_int,
    text: *const c_char,
}

/// `struct pam_response`
#[repr(C)]
struct PamResponse {
    text: *mut c_char,
    /// Not in use; 0.
    code: c_int,
}

/// `struct pam_conv`
#[repr(C)]
struct PamConversation {
    call: unsafe extern "C" fn(
        c_int,
        *const *const PamMessage,
        *mut *mut PamResponse,
        *mut c_void,
    ) -> c_int,
    data: *mut c_void,
}

type StartCall = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const PamConversation,
    *mut Handle,
) -> c_int;
type EndCall = unsafe extern "C" fn(Handle, c_int) -> c_int;
type SetItemCall = unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int;
type GetItemCall = unsafe extern "C" fn(Handle, c_int, *mut *const c_void) -> c_int;
/// `pam_authenticate` and `pam_acct_mgmt`.
type CheckCall = unsafe extern "C" fn(Handle, c_int) -> c_int;
type ErrorTextCall = unsafe extern "C" fn(Handle, c_int) -> *const c_char;

/// The library, which stays loaded until the process ends: modules leave threads and handlers behind.
#[derive(Debug, Clone, Copy)]
pub struct PamLibrary {
    start: StartCall,
    end: EndCall,
    set_item: SetItemCall,
    get_item: GetItemCall,
    authenticate: CheckCall,
    check_account: CheckCall,
    error_text: ErrorTextCall,
}

/// The library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PamLibraryError {
    /// It is not there, or this program cannot load libraries.
    #[error("cannot load the library of PAM: {0}")]
    Missing(String),
    /// It is another kind of PAM.
    #[error("the library of PAM has no {0}")]
    Function(&'static str),
}

/// A login that PAM shall judge.
#[derive(Debug, Clone, Copy)]
pub struct PamLogin<'l> {
    /// Name of the service: which file below `/etc/pam.d` counts.
    pub service: &'l str,
    /// The account.
    pub user: &'l str,
    /// Its password.
    pub password: &'l Secret,
    /// Address of the client.
    pub remote_host: &'l str,
}

/// The reason why PAM refused a login, for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PamRefusal {
    /// A NUL would cut the text.
    #[error("the {0} has a NUL character")]
    Nul(&'static str),
    /// The transaction could not begin.
    #[error("cannot ask: {0}")]
    Start(String),
    /// The password, or what else the modules of `auth` check, is wrong.
    #[error("{0}")]
    Password(String),
    /// The account may not log in now: expired, or excluded.
    #[error("account: {0}")]
    Account(String),
    /// A module put another name in place of the account's.
    #[error("a module changed the name of the account")]
    OtherName,
}

impl PamLibrary {
    /// Loads the library. Its modules are loaded with the first question.
    ///
    /// # Errors
    /// See [`PamLibraryError`]. A static program cannot load any.
    pub fn load() -> Result<Self, PamLibraryError> {
        // Global, as if the program were linked with it: not every module names the library that it uses.
        // SAFETY: the name is a C string; the library is the system's, whose constructors are meant to run here.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Err(PamLibraryError::Missing(loader_error()));
        }
        let find = |name: &'static CStr| {
            // SAFETY: `library` is open, and the name is a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            let missing = || PamLibraryError::Function(name.to_str().unwrap_or_default());
            (!found.is_null()).then_some(found).ok_or_else(missing)
        };
        // SAFETY: these functions have had these types since the first version of the interface that
        // `LIBRARY` names (`pam_appl.h`), and the library is never closed.
        unsafe {
            Ok(Self {
                start: std::mem::transmute::<*mut c_void, StartCall>(find(c"pam_start")?),
                end: std::mem::transmute::<*mut c_void, EndCall>(find(c"pam_end")?),
                set_item: std::mem::transmute::<*mut c_void, SetItemCall>(find(c"pam_set_item")?),
                get_item: std::mem::transmute::<*mut c_void, GetItemCall>(find(c"pam_get_item")?),
                authenticate: std::mem::transmute::<*mut c_void, CheckCall>(find(
                    c"pam_authenticate",
                )?),
                check_account: std::mem::transmute::<*mut c_void, CheckCall>(find(
                    c"pam_acct_mgmt",
                )?),
                error_text: std::mem::transmute::<*mut c_void, ErrorTextCall>(find(
                    c"pam_strerror",
                )?),
            })
        }
    }

    /// Asks PAM for the password and then for the account (`pam_authenticate`, `pam_acct_mgmt`). No session is
    /// opened and no credentials are set. Delays that modules ask for are not made: the caller has its own. Takes as
    /// long as the modules take.
    ///
    /// # Errors
    /// See [`PamRefusal`].
    pub fn check(&self, login: PamLogin<'_>) -> Result<(), PamRefusal> {
        let service = c_text(login.service, "service")?;
        let user = c_text(login.user, "user name")?;
        let remote_host = c_text(login.remote_host, "address")?;
        // As long as it will be, so that no copy of the password is left where a buffer grew.
        let mut password = Secret(Vec::with_capacity(login.password.0.len() + 1));
        password.0.extend_from_slice(&login.password.0);
        password.0.push(0);
        let password = CStr::from_bytes_with_nul(&password.0);
        let password = password.map_err(|_| PamRefusal::Nul("password"))?;
        let conversation = PamConversation {
            call: converse,
            data: password.as_ptr().cast_mut().cast(),
        };
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the strings are C strings; `conversation` and the password, to which it points, outlive the
        // transaction, which ends below; `handle` is a place for a pointer.
        let status =
            unsafe { (self.start)(service.as_ptr(), user.as_ptr(), &conversation, &mut handle) };
        if status != PAM_SUCCESS || handle.is_null() {
            return Err(PamRefusal::Start(self.text(handle, status)));
        }
        let (status, answer) = self.transact(handle, &user, &remote_host);
        // SAFETY: `handle` was started, and is not used any more.
        unsafe { (self.end)(handle, status) };
        answer
    }

    /// The steps of a transaction; returns the last status of PAM, too, which modules get at the end.
    fn transact(
        &self,
        handle: Handle,
        user: &CStr,
        remote_host: &CStr,
    ) -> (c_int, Result<(), PamRefusal>) {
        let no_delay: unsafe extern "C" fn(c_int, c_uint, *mut c_void) = skip_delay;
        let items: [(c_int, *const c_void); 3] = [
            (PAM_RHOST, remote_host.as_ptr().cast()),
            (PAM_TTY, TERMINAL.as_ptr().cast()),
            (PAM_FAIL_DELAY, no_delay as *const c_void),
        ];
        for (item, value) in items {
            // SAFETY: `handle` was started; PAM copies strings, and takes the function by its address, of the
            // type that pam_fail_delay(3) names.
            let status = unsafe { (self.set_item)(handle, item, value) };
            if status != PAM_SUCCESS {
                return (status, Err(PamRefusal::Start(self.text(handle, status))));
            }
        }
        let flags = PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK;
        // SAFETY: `handle` was started.
        let status = unsafe { (self.authenticate)(handle, flags) };
        if status != PAM_SUCCESS {
            return (status, Err(PamRefusal::Password(self.text(handle, status))));
        }
        // SAFETY: as above.
        let status = unsafe { (self.check_account)(handle, flags) };
        if status != PAM_SUCCESS {
            return (status, Err(PamRefusal::Account(self.text(handle, status))));
        }
        let mut name: *const c_void = ptr::null();
        // SAFETY: `handle` was started, and `name` is a place for a pointer.
        let status = unsafe { (self.get_item)(handle, PAM_USER, &mut name) };
        if status != PAM_SUCCESS || name.is_null() {
            return (status, Err(PamRefusal::OtherName));
        }
        // SAFETY: this item is a C string that PAM owns until it is set again.
        let is_same = unsafe { CStr::from_ptr(name.cast()) } == user;
        let answer = is_same.then_some(()).ok_or(PamRefusal::OtherName);
        (status, answer)
    }

    /// PAM's text for a status.
    fn text(&self, handle: Handle, status: c_int) -> String {
        // SAFETY: Linux-PAM does not look at the handle, which may be null.
        let text = unsafe { (self.error_text)(handle, status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: it is a C string that is never changed.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().chars().take(MAX_TEXT).collect()
    }
}

/// The last error of the dynamic loader.
fn loader_error() -> String {
    // SAFETY: no arguments; the text stays until this thread uses the loader again.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "this program cannot load libraries".to_owned();
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

fn c_text(text: &str, what: &'static str) -> Result<CString, PamRefusal> {
    CString::new(text).map_err(|_| PamRefusal::Nul(what))
}

/// Takes the place of the delay after a failure (pam_fail_delay(3)).
unsafe extern "C" fn skip_delay(_status: c_int, _microseconds: c_uint, _data: *mut c_void) {}

/// Answers the modules (pam_conv(3)): a question without echo gets the password, a text is passed over, and what
/// asks for more cannot be answered in one PASS.
///
/// # Safety
/// As PAM calls it: `messages` are so many pointers, `answers` a place for a pointer, and `data` is the password, a C
/// string.
unsafe extern "C" fn converse(
    count: c_int,
    messages: *const *const PamMessage,
    answers: *mut *mut PamResponse,
    data: *mut c_void,
) -> c_int {
    let count = match usize::try_from(count) {
        Ok(count @ 1..=MAX_MESSAGES) if !messages.is_null() && !answers.is_null() => count,
        _ => return PAM_CONV_ERR,
    };
    // SAFETY: the sizes are not 0. PAM frees the memory (pam_conv(3)), so it must be the C library's.
    let made = unsafe { libc::calloc(count, size_of::<PamResponse>()) };
    let made: *mut PamResponse = made.cast();
    if made.is_null() {
        return PAM_BUF_ERR;
    }
    for n in 0..count {
        // SAFETY: there are `count` pointers to messages.
        let message = unsafe { *messages.add(n) };
        let style = match message.is_null() {
            true => PAM_SYSTEM_ERR,
            // SAFETY: it is not null, so it is a message.
            false => unsafe { (*message).style },
        };
        let status = match style {
            PAM_PROMPT_ECHO_OFF => {
                // SAFETY: `data` is a C string.
                let copy = unsafe { libc::strdup(data.cast()) };
                // SAFETY: `made` has `count` elements.
                unsafe { (*made.add(n)).text = copy };
                if copy.is_null() {
                    PAM_BUF_ERR
                } else {
                    PAM_SUCCESS
                }
            }
            PAM_TEXT_INFO | PAM_ERROR_MSG => PAM_SUCCESS,
            _ => PAM_CONV_ERR,
        };
        if status != PAM_SUCCESS {
            // SAFETY: `made` has `count` elements, each text of which is null or from strdup(3).
            unsafe { discard(made, count) };
            return status;
        }
    }
    // SAFETY: `answers` is a place for a pointer.
    unsafe { *answers = made };
    PAM_SUCCESS
}

/// Overwrites and frees answers that PAM does not get.
///
/// # Safety
/// `made` has `count` elements of calloc(3), whose texts are null or of strdup(3).
unsafe fn discard(made: *mut PamResponse, count: usize) {
    for n in 0..count {
        // SAFETY: by the caller.
        unsafe {
            let text = (*made.add(n)).text;
            if !text.is_null() {
                // The calls of explicit_bzero(3) are not removed as dead stores.
                libc::explicit_bzero(text.cast(), libc::strlen(text));
                libc::free(text.cast());
            }
        }
    }
    // SAFETY: by the caller.
    unsafe { libc::free(made.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to messages of these styles, or the status.
    fn answers(styles: &[c_int]) -> Result<Vec<Option<String>>, c_int> {
        let texts: Vec<PamMessage> = styles
            .iter()
            .map(|style| PamMessage {
                style: *style,
                text: c"Password: ".as_ptr(),
            })
            .collect();
        let messages: Vec<*const PamMessage> = texts.iter().map(ptr::from_ref).collect();
        let mut made: *mut PamResponse = ptr::null_mut();
        let count = c_int::try_from(styles.len()).unwrap();
        let password = c"secret".as_ptr().cast_mut().cast();
        // SAFETY: as PAM calls it.
        let status = unsafe { converse(count, messages.as_ptr(), &mut made, password) };
        if status != PAM_SUCCESS {
            assert!(made.is_null());
            return Err(status);
        }
        let read = |n: usize| {
            // SAFETY: an answer for each message, with a C string or null.
            let text = unsafe { (*made.add(n)).text };
            // SAFETY: see above.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
        };
        let read = (0..styles.len()).map(read).collect();
        // SAFETY: they are of `converse`.
        unsafe { discard(made, styles.len()) };
        Ok(read)
    }

    #[test]
    fn questions_without_echo_get_the_password_and_texts_nothing() {
        let password = Some("secret".to_owned());
        let styles = [PAM_TEXT_INFO, PAM_PROMPT_ECHO_OFF, PAM_ERROR_MSG];
        assert_eq!(answers(&styles), Ok(vec![None, password, None]));
    }

    #[test]
    fn other_questions_end_the_conversation() {
        const PAM_PROMPT_ECHO_ON: c_int = 2;
        let styles = [PAM_PROMPT_ECHO_OFF, PAM_PROMPT_ECHO_ON];
        assert_eq!(answers(&styles), Err(PAM_CONV_ERR));
        assert_eq!(answers(&[]), Err(PAM_CONV_ERR));
        assert_eq!(
            answers(&[PAM_TEXT_INFO; MAX_MESSAGES + 1]),
            Err(PAM_CONV_ERR)
        );
    }

    #[test]
    fn a_text_with_nul_is_refused() {
        let Ok(library) = PamLibrary::load() else {
            eprintln!("SKIPPED: this system has no PAM");
            return;
        };
        let login = PamLogin {
            service: "longhaul-no-such-service",
            user: "ann",
            password: &Secret::from("a\0b"),
            remote_host: "192.0.2.1",
        };
        assert_eq!(library.check(login), Err(PamRefusal::Nul("password")));
        let login = PamLogin {
            user: "a\0b",
            ..login
        };
        assert_eq!(library.check(login), Err(PamRefusal::Nul("user name")));
    }
}
