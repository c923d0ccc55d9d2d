//! What a client says of itself, for the log.

/// Longest note kept, bytes: a session's memory is not the client's to fill.
const LONGEST: usize = 256;

/// Notes of a session.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// SITE TASKID.
    pub(super) task: Option<Box<str>>,
    /// SITE CLIENTINFO or CLNT.
    pub(super) client: Option<Box<str>>,
}

impl Notes {
    /// Keeps a note; a later one under the same key replaces it.
    pub(super) fn set(&mut self, key: &'static str, mut value: String) {
        value.truncate(value.floor_char_boundary(LONGEST));
        tracing::debug!(key, value, "note");
        match key {
            "task" => self.task = Some(value.into()),
            "client" => self.client = Some(value.into()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        let mut notes = Notes::default();
        notes.set("client", "é".repeat(LONGEST));
        assert_eq!(
            notes.client.as_deref(),
            Some("é".repeat(LONGEST / 2).as_str())
        );
        assert!(notes.task.is_none());
    }
}
