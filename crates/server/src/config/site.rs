//! Settings that name accounts and files of the host, ready for use: modes and owner of new files, and messages.

use std::sync::Arc;

use data::store::root::CreationRules;
use rustix::fs::Mode;
use rustix::process::umask;

use super::{MessageFileError, ServerConfig, UploadOwnerError};

/// Modes, owner and messages, ready for use.
#[derive(Debug, Default)]
pub(crate) struct SiteTerms {
    /// Modes and owner of new files.
    pub(crate) creation: CreationRules,
    /// Lines before the greeting.
    pub(crate) banner: Arc<[String]>,
    /// Lines after the login.
    pub(crate) welcome: Vec<String>,
    /// Name of the file with the message of a directory.
    pub(crate) directory_message: Option<Arc<str>>,
    /// The umask that the process was started with; `None`: no settings about modes have ever changed it.
    started_umask: Option<Mode>,
}

/// The reason why these settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// New files cannot get their owner.
    #[error(transparent)]
    Owner(#[from] UploadOwnerError),
    /// A message cannot be read.
    #[error(transparent)]
    Message(#[from] MessageFileError),
}

impl SiteTerms {
    /// Looks up the owner of uploads and reads the messages. `is_root`: the process serves as root. `before`: the terms that
    /// these replace.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn load(
        config: &ServerConfig,
        is_root: bool,
        before: Option<&Self>,
    ) -> Result<Self, SiteError> {
        let texts = config.messages.load()?;
        let mut creation = config.creation.rules(is_root)?;
        let mut started_umask = before.and_then(|before| before.started_umask);
        if creation.file_mode.is_some() || creation.directory_mode.is_some() {
            let mask = *started_umask.get_or_insert_with(present_umask);
            creation.complete_modes(mask.as_raw_mode());
        }
        Ok(Self {
            creation,
            banner: texts.banner.into(),
            welcome: texts.welcome,
            directory_message: config.messages.directory_message.as_deref().map(Arc::from),
            started_umask,
        })
    }

    /// Has the process's umask permit the modes of new files and directories. A mode that is set later clears the
    /// set-group-ID bit of a directory whose group is not one of the process's (chmod(2)).
    pub(crate) fn set_umask(&self) {
        if let Some(started) = self.started_umask {
            let permitted = self.creation.permitted_modes();
            umask(permitted.map_or(started, |modes| Mode::from_raw_mode(0o777 & !modes)));
        }
    }
}

/// The umask can only be read by changing it (umask(2)).
fn present_umask() -> Mode {
    let present = umask(Mode::RWXG | Mode::RWXO);
    umask(present);
    present
}
