//! SITE commands.

use super::files::{SuccessReply, ok_reply};
use super::logged_in::LoggedInSession;
use super::replies::{self, CommandResult};
use super::{FileRequest, SessionAction, SessionConfig, help};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DriverStack, SiteCommand};
use crate::path::VPath;
use crate::remark;
use crate::reply::Reply;
use crate::security::ExchangeKind;
use crate::timestamp::Timestamp;

/// Most pairs of names that SITE SYMLINK may mean: each is looked up.
const MAX_LINK_PAIRS: usize = 64;

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
            SiteCommand::Symlink(names) => self.symlink(&names),
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
            SiteCommand::DriverStack(stack, drivers) => {
                let has_gsi = self.protection.exchange == Some(ExchangeKind::Tokens);
                Ok(driver_stack(stack, &drivers, has_gsi))
            }
            SiteCommand::ClientInfo(text) => {
                // Never reset: clients may send CLIENTINFO several times with different fields.
                self.parameters.reads_remarks |= remark::client_reads_remarks(&text);
                Ok(note("client", text))
            }
            SiteCommand::TaskId(text) => Ok(note("task", text)),
            SiteCommand::DataPeer(hosts) => Ok(self.site_datapeer(&hosts)),
            SiteCommand::Whoami => Ok(replies::reply(200, &self.user)),
            SiteCommand::Version => Ok(replies::reply(200, &config.version)),
            SiteCommand::BundleAdd(entries) | SiteCommand::BundlePack(entries) => {
                self.announce_bundle(config, entries)
            }
            SiteCommand::BundleEnd(proof) => Ok(self.end_bundle(proof)),
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

    /// SITE SYMLINK. A relative target is stored unchanged, as `ln -s` does. With more than one space, the one before an
    /// absolute path is between the names; without one, each may be.
    fn symlink(&mut self, names: &[u8]) -> CommandResult {
        let spaces = (1..names.len().saturating_sub(1)).filter(|at| names[*at] == b' ');
        let mut before_root = spaces.clone().filter(|at| names[at + 1] == b'/');
        let sure = before_root.next().filter(|_| before_root.next().is_none());
        let mut pairs = spaces
            .filter(|at| sure.is_none_or(|sure| sure == *at))
            .take(MAX_LINK_PAIRS + 1)
            .map(|at| self.link_pair(&names[..at], &names[at + 1..]))
            .collect::<Result<Vec<_>, _>>()?;
        let request = match pairs.len() {
            0 => {
                return Ok(replies::reply(
                    501,
                    "SITE SYMLINK needs a target and a link.",
                ));
            }
            1 => {
                let (target, link) = pairs.remove(0);
                FileRequest::Symlink { target, link }
            }
            2..=MAX_LINK_PAIRS => FileRequest::SymlinkAmong(pairs),
            _ => {
                let text = "Too many spaces: use SITE SYMLINKFROM and SITE SYMLINKTO.";
                return Ok(replies::reply(501, text));
            }
        };
        let path = match &request {
            FileRequest::Symlink { link, .. } => link.clone(),
            _ => self.cwd.clone(),
        };
        Ok(self.start_file_change("SITE SYMLINK", path, request, ok_reply()))
    }

    fn link_pair(
        &self,
        target: &[u8],
        link: &[u8],
    ) -> Result<(Vec<u8>, VPath), Vec<SessionAction>> {
        let link = self.resolve(link)?;
        let target = match target {
            // These targets are virtual paths of the session; see `relative_target`.
            [b'/' | b'~', ..] => relative_target(&self.resolve(target)?, &link),
            relative => relative.to_vec(),
        };
        Ok((target, link))
    }

    /// SITE SYMLINKFROM. The target must exist.
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

    /// SITE IDLE. The timeout is limited to the administrator's maximum; the reply shows the result.
    fn idle(&mut self, seconds: Option<u32>, max_seconds: u32) -> Vec<SessionAction> {
        let Some(seconds) = seconds else {
            return replies::reply(
                200,
                match self.parameters.idle_seconds {
                    Some(seconds) => format!("Idle time-out is {seconds} seconds."),
                    None => "Idle time-out is the server's default.".to_owned(),
                },
            );
        };
        // 0 would close the session at once.
        let seconds = seconds.clamp(1, max_seconds.max(1));
        self.parameters.idle_seconds = Some(seconds);
        let mut actions = vec![SessionAction::IdleTimeout(seconds)];
        actions.extend(replies::reply(
            200,
            format!("Idle time-out set to {seconds} seconds."),
        ));
        actions
    }
}

/// SITE SETDISKSTACK and SETNETSTACK. As the globus server does, this server accepts the drivers that it always uses, with
/// options after a colon (`globus-url-copy -dcstack tcp` sends `tcp,gsi`). It refuses all others with that server's texts.
/// DCAU and PROT alone decide about GSI; options of that driver could ask for more than they do.
fn driver_stack(stack: DriverStack, drivers: &str, has_gsi: bool) -> Vec<SessionAction> {
    let purpose = match stack {
        DriverStack::Disk => "filesystem",
        DriverStack::Net => "data channel",
    };
    let is_offered = |driver: &&str| match (stack, driver.split_once(':').unwrap_or((driver, ""))) {
        (DriverStack::Disk, ("file", _)) | (DriverStack::Net, ("tcp", _)) => true,
        (DriverStack::Net, ("gsi", options)) => has_gsi && options.is_empty(),
        _ => false,
    };
    let refused = drivers.split(',').find(|driver| !is_offered(driver));
    let Some(refused) = refused.filter(|_| drivers != "default") else {
        return replies::reply(250, "OK.");
    };
    let lines = vec![
        format!("Setting {purpose} driver stack failed.").into_bytes(),
        format!("{refused} driver not offered").into_bytes(),
    ];
    vec![SessionAction::Reply(Reply::multi_line(500, lines))]
}

fn note(key: &'static str, text: String) -> Vec<SessionAction> {
    let mut actions = vec![SessionAction::LogField(key, text)];
    actions.extend(replies::reply(250, "OK."));
    actions
}

/// Relative text for a symbolic link at `link` that points to `target`. For programs of the host, which
/// are not confined to the session's root, an absolute text would point to another file.
fn relative_target(target: &VPath, link: &VPath) -> Vec<u8> {
    let target: Vec<&[u8]> = components(target.relative());
    let parent = link.parent();
    let from: Vec<&[u8]> = components(parent.relative());
    let common = target.iter().zip(&from).take_while(|(a, b)| a == b).count();
    let parent_steps = std::iter::repeat_n(b"..".as_slice(), from.len() - common);
    let components_of_link: Vec<&[u8]> = parent_steps
        .chain(target[common..].iter().copied())
        .collect();
    if components_of_link.is_empty() {
        return b".".to_vec();
    }
    components_of_link.join(&b'/')
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
    fn relative_link_targets_resolve_from_the_directory_of_the_link() {
        assert_eq!(target("/a", "/l"), "a");
        assert_eq!(target("/data/a", "/data/sub/l"), "../a");
        assert_eq!(target("/data/sub/a", "/l"), "data/sub/a");
        assert_eq!(target("/x/y", "/a/b/c/l"), "../../../x/y");
        assert_eq!(target("/data", "/data/l"), ".");
        assert_eq!(target("/", "/a/b/l"), "../..");
    }
}
