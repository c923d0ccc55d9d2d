//! Settings that name accounts and files of the host, ready for use: modes and owner of new files, and messages.

use std::sync::Arc;

use data::store::root::CreationRules;

use crate::config::{MessageFileError, ServerConfig, UploadOwnerError};

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
    /// Looks up the owner of uploads and reads the messages. `is_root`: the process serves as root.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub(crate) fn load(config: &ServerConfig, is_root: bool) -> Result<Self, SiteError> {
        let texts = config.messages.load()?;
        Ok(Self {
            creation: config.creation.rules(is_root)?,
            banner: texts.banner.into(),
            welcome: texts.welcome,
            directory_message: config.messages.directory_message.as_deref().map(Arc::from),
        })
    }
}
