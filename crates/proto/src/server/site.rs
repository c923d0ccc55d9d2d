//! SITE commands.

use super::file_task::SuccessReply;
use super::files::ok_reply;
use super::replies::{self, CommandResult};
use super::session_state::LoggedInSession;
use super::{FileRequest, SessionAction, SessionConfig, help};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DriverStack, SiteCommand};
use crate::path::VPath;
use crate::remark;
use crate::reply::Reply;
use crate::timestamp::Timestamp;

impl LoggedInSession {
    /// SITE
    pub(super) fn site(&mut self, config: &SessionConfig, site: SiteCommand) -> CommandResult {
        match site {
            SiteCommand::Chmod(mode, path) => {
                self.change_path("SITE CHMOD", &path, |p| FileRequest::Chmod(p, mode))
            }
            SiteCommand::Chgrp(group, path) => {
                self.change_path("SITE CHGRP", &path, |p| FileRequest::Chgrp(p, group))
            }
            SiteCommand::Utime(time, path) => {
                self.change_path("SITE UTIME", &path, |p| FileRequest::SetModified(p, time))
            }
            SiteCommand::Truncate(length, path) => {
                self.change_path("SITE TRNC", &path, |p| FileRequest::Truncate(p, length))
            }
            SiteCommand::RemoveTree(path) => {
                self.change_path("SITE RDEL", &path, FileRequest::RemoveTree)
            }
            SiteCommand::Symlink(target, link) => self.symlink(&target, &link),
            SiteCommand::SymlinkFrom(target) => self.symlink_from(&target),
            SiteCommand::SymlinkTo(link) => self.symlink_to(&link),
            SiteCommand::StorAttr { modify, checksum } => {
                Ok(self.store_attributes(modify, checksum))
            }
            SiteCommand::Idle(seconds) => Ok(self.idle(seconds, config.max_idle_seconds)),
            SiteCommand::Buffer(side, bytes) => {
                self.set_buffer(side, bytes);
                Ok(replies::reply(200, "Site Command Successful."))
            }
            SiteCommand::DriverStack(stack, drivers) => Ok(driver_stack(stack, &drivers)),
            SiteCommand::ClientInfo(text) => {
                self.parameters.reads_remarks |= remark::client_reads_remarks(&text);
                Ok(note("client", text))
            }
            SiteCommand::TaskId(text) => Ok(note("task", text)),
            SiteCommand::DataPeer(address) => Ok(self.site_datapeer(address)),
            SiteCommand::Whoami => Ok(replies::reply(200, &self.user)),
            SiteCommand::Version => Ok(replies::reply(200, &config.version)),
            SiteCommand::Umask(_) => {
                let text = "SITE UMASK is not offered; use SITE CHMOD.";
                Ok(replies::reply(502, text))
            }
            SiteCommand::Help => Ok(vec![SessionAction::Reply(help::site_help())]),
            SiteCommand::Unknown(text) => {
                Ok(replies::reply(500, format!("Unknown SITE command {text}.")))
            }
        }
    }

    fn change_path(
        &mut self,
        verb: &'static str,
        argument: &[u8],
        request: impl FnOnce(VPath) -> FileRequest,
    ) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_change(verb, path.clone(), request(path), ok_reply()))
    }

    /// SITE SYMLINK: a relative target is kept as it is, as `ln -s` keeps it.
    fn symlink(&mut self, target: &[u8], link: &[u8]) -> CommandResult {
        let link = self.resolve(link)?;
        let target = match target {
            [b'/' | b'~', ..] => relative_target(&self.resolve(target)?, &link),
            relative => relative.to_vec(),
        };
        let request = FileRequest::Symlink {
            target,
            link: link.clone(),
        };
        Ok(self.start_file_change("SITE SYMLINK", link, request, ok_reply()))
    }

    /// SITE SYMLINKFROM: the target must exist.
    fn symlink_from(&mut self, target: &[u8]) -> CommandResult {
        self.link_from = None;
        let path = self.resolve(target)?;
        let request = FileRequest::Stat(path.clone());
        Ok(self.start_file_change("SITE SYMLINKFROM", path, request, SuccessReply::LinkFrom))
    }

    /// SITE SYMLINKTO
    fn symlink_to(&mut self, link: &[u8]) -> CommandResult {
        let Some(target) = self.link_from.take() else {
            return Ok(replies::reply(
                503,
                "Send SITE SYMLINKFROM with the target first.",
            ));
        };
        let link = self.resolve(link)?;
        let request = FileRequest::Symlink {
            target: relative_target(&target, &link),
            link: link.clone(),
        };
        Ok(self.start_file_change("SITE SYMLINKTO", link, request, ok_reply()))
    }

    fn store_attributes(
        &mut self,
        modify: Option<Timestamp>,
        checksum: Option<(ChecksumAlgorithm, String)>,
    ) -> Vec<SessionAction> {
        if checksum.is_some() {
            self.next_transfer.store.expected_checksum = checksum;
        }
        if modify.is_some() {
            self.next_transfer.store.modified = modify;
        }
        replies::reply(250, "OK.")
    }

    /// SITE IDLE: at most what the administrator allows; the reply says what it came to.
    fn idle(&mut self, seconds: Option<u32>, most: u32) -> Vec<SessionAction> {
        let Some(seconds) = seconds else {
            return replies::reply(
                200,
                match self.parameters.idle_seconds {
                    Some(seconds) => format!("Idle time-out is {seconds} seconds."),
                    None => "Idle time-out is the server's default.".to_owned(),
                },
            );
        };
        let seconds = seconds.clamp(1, most.max(1));
        self.parameters.idle_seconds = Some(seconds);
        let mut actions = vec![SessionAction::IdleTimeout(seconds)];
        actions.extend(replies::reply(
            200,
            format!("Idle time-out set to {seconds} seconds."),
        ));
        actions
    }
}

/// The globus server takes its own default stacks from anybody (`globus-url-copy -fsstack file`
/// sends one), and so does this one, which has no others. Its words for the rest.
fn driver_stack(stack: DriverStack, drivers: &str) -> Vec<SessionAction> {
    let (plain, what) = match stack {
        DriverStack::Disk => ("file", "filesystem"),
        DriverStack::Net => ("tcp", "data channel"),
    };
    if drivers == plain || drivers == "default" {
        return replies::reply(250, "OK.");
    }
    let unknown = drivers.split(',').find(|driver| *driver != plain);
    let lines = vec![
        format!("Setting {what} driver stack failed.").into_bytes(),
        format!("{} driver not offered", unknown.unwrap_or(drivers)).into_bytes(),
    ];
    vec![SessionAction::Reply(Reply::multi_line(500, lines))]
}

fn note(key: &'static str, text: String) -> Vec<SessionAction> {
    let mut actions = vec![SessionAction::LogField(key, text)];
    actions.extend(replies::reply(250, "OK."));
    actions
}

/// Text of a link at `link` that leads to `target`. An absolute text would name a path of the
/// host, not one inside the session's root.
fn relative_target(target: &VPath, link: &VPath) -> Vec<u8> {
    let target: Vec<&[u8]> = components(target.relative());
    let parent = link.parent();
    let from: Vec<&[u8]> = components(parent.relative());
    let common = target.iter().zip(&from).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(b"..".as_slice(), from.len() - common);
    let steps: Vec<&[u8]> = up.chain(target[common..].iter().copied()).collect();
    if steps.is_empty() {
        return b".".to_vec();
    }
    steps.join(&b'/')
}

fn components(relative: &[u8]) -> Vec<&[u8]> {
    relative
        .split(|b| *b == b'/')
        .filter(|c| !c.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::relative_target;
    use crate::path::VPath;

    fn target(target: &str, link: &str) -> String {
        let path = |p: &str| VPath::root().resolve(p.as_bytes()).unwrap();
        String::from_utf8(relative_target(&path(target), &path(link))).unwrap()
    }

    #[test]
    fn links_lead_to_their_target_wherever_they_lie() {
        assert_eq!(target("/a", "/l"), "a");
        assert_eq!(target("/data/a", "/data/sub/l"), "../a");
        assert_eq!(target("/data/sub/a", "/l"), "data/sub/a");
        assert_eq!(target("/x/y", "/a/b/c/l"), "../../../x/y");
        assert_eq!(target("/data", "/data/l"), ".");
        assert_eq!(target("/", "/a/b/l"), "../..");
    }
}
