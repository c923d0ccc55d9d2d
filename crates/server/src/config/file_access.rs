//! The files that a server uses, by its settings.

use std::path::{Path, PathBuf};

use super::ServerConfig;
use crate::sandbox::{FileAccess, directory_of};
use crate::users::Users;

impl FileAccess {
    /// The files that a server with these settings uses: its roots and those of the accounts for
    /// writing, its logs, and for reading everything that it reads again on a reload. `settings`: the
    /// settings file. A root that an account gets later is reachable only below one of these until the
    /// server is restarted.
    pub fn of_server(config: &ServerConfig, settings: Option<&Path>) -> Self {
        let security = &config.security;
        let mut write = Vec::new();
        if config.served_store.is_none() {
            write.push(config.root.clone());
        }
        // Errors of the users file are reported when the server starts.
        let users = config
            .users
            .as_deref()
            .and_then(|path| Users::load(path).ok());
        write.extend(users.iter().flat_map(Users::roots));
        let logs = [&config.transfer_log, &config.ftp_info_log];
        write.extend(logs.into_iter().flatten().map(|log| directory_of(log)));
        let history = config.history.clone().file();
        write.extend(history.as_deref().map(directory_of));
        // The process that holds the key reads both.
        let own_key = config.key_holder.is_none();
        let files = [
            settings,
            config.users.as_deref(),
            security.certificate.as_deref().filter(|_| own_key),
            security.key.as_deref().filter(|_| own_key),
            security.gridmap.as_deref(),
            security.client_authorities.as_deref(),
            security.node_authorities.as_deref(),
            config.messages.banner_file.as_deref(),
            config.messages.welcome_file.as_deref(),
        ];
        let mut read: Vec<PathBuf> = files.into_iter().flatten().map(directory_of).collect();
        let keys = security.token_issuers.iter();
        read.extend(
            keys.filter_map(|issuer| issuer.keys.as_deref())
                .map(|keys| directory_of(Path::new(keys))),
        );
        read.extend(security.client_authorities.clone());
        read.extend(security.node_authorities.clone());
        read.extend(security.grid_authorities.clone());
        read.extend(environment_paths());
        Self { read, write }
    }
}

/// Places of certificate authorities that the environment names, and those of the user.
fn environment_paths() -> impl Iterator<Item = PathBuf> {
    let named = ["X509_CERT_DIR", "SSL_CERT_DIR", "SSL_CERT_FILE"];
    let home = std::env::home_dir().map(|home| home.join(".globus/certificates"));
    let named = named.into_iter().filter_map(std::env::var_os);
    named.map(PathBuf::from).chain(home)
}
