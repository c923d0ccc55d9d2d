//! Settings of a site about its clients: who is served, shares, modes of files, and messages.

use super::{FileConfig, set_if_given};
use crate::config::{RateText, ServerConfig, SizeText};

impl FileConfig {
    /// Applies these settings; takes those that are not copied.
    pub(super) fn apply_site(&mut self, config: &mut ServerConfig) {
        set_if_given(&mut config.log, self.log);
        let access = &mut config.access;
        set_if_given(&mut access.allow_from, self.allow_from.take());
        set_if_given(&mut access.deny_from, self.deny_from.take());
        set_if_given(&mut access.allow_users, self.allow_users.take());
        set_if_given(&mut access.deny_users, self.deny_users.take());
        let creation = &mut config.creation;
        creation.umask = self.umask.or(creation.umask);
        creation.file_mode = self.file_mode.or(creation.file_mode);
        creation.directory_mode = self.directory_mode.or(creation.directory_mode);
        creation.upload_owner = self.upload_owner.take().or(creation.upload_owner.take());
        let shares = &mut config.shares;
        let rate =
            |given: Option<RateText>, before| given.map(RateText::bytes_per_second).or(before);
        shares.rate = rate(self.limit_rate, shares.rate);
        shares.rate_per_address = rate(self.limit_rate_per_address, shares.rate_per_address);
        shares.rate_per_user = rate(self.limit_rate_per_user, shares.rate_per_user);
        shares.quota.bytes = self.quota.map(SizeText::bytes).or(shares.quota.bytes);
        shares.quota.files = self.quota_files.or(shares.quota.files);
        set_if_given(&mut shares.users, self.user.take());
        let messages = &mut config.messages;
        messages.banner = self.banner.take().or(messages.banner.take());
        messages.banner_file = self.banner_file.take().or(messages.banner_file.take());
        messages.welcome_file = self.welcome_file.take().or(messages.welcome_file.take());
        let name = self.directory_message.take();
        messages.directory_message = name.or(messages.directory_message.take());
    }
}
