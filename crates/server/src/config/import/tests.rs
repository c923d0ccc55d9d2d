use super::*;
use crate::config::{Anonymous, FileConfig, ServerConfig, TlsPolicy, UnlistedRights};

/// The translation of a text, which must be a settings file; with its text.
fn imported(text: &str) -> (ServerConfig, String) {
    read_back(import_settings(text, "test", None).unwrap())
}

fn read_back(settings: String) -> (ServerConfig, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    std::fs::write(&path, &settings).unwrap();
    let mut config = ServerConfig::default();
    let file = FileConfig::load(&path).unwrap_or_else(|error| panic!("{error}\n{settings}"));
    file.apply(&mut config);
    (config, settings)
}

/// The part of a translation that is not said to be so always.
fn untranslated(settings: &str) -> &str {
    settings.split("Always so").next().unwrap_or_default()
}

/// Whether each directive of a text is in the translation: its line as the origin of a key or in a comment.
fn assert_nothing_is_lost(server: ForeignServer, text: &str, settings: &str) {
    for directive in server.directives(text) {
        let line = format!("line {}: ", directive.line);
        assert!(
            settings.contains(&line),
            "{}\n{settings}",
            directive.original
        );
    }
}

#[test]
fn vsftpd_with_tls_and_users() {
    let text = "# a comment\nlisten=NO\nlisten_ipv6=YES\nanonymous_enable=NO\nlocal_enable=YES\nwrite_enable=YES\n\
        local_umask=022\npam_service_name=vsftpd\nssl_enable=YES\nrsa_cert_file=/c.pem\nrsa_private_key_file=/k.pem\n\
        pasv_min_port=50000\npasv_max_port=50999\nlocal_max_rate=1000000\nhide_ids=YES\nidle_session_timeout=0\nno_such=1\n";
    assert_eq!(ForeignServer::of_text(text), Some(ForeignServer::Vsftpd));
    let (config, settings) = imported(text);
    assert_eq!(config.listen, "[::]:21".parse().unwrap());
    assert_eq!(config.anonymous, None);
    assert_eq!(config.pam.service.as_deref(), Some("vsftpd"));
    assert_eq!(config.data_ports, Some((50_000, 50_999)));
    assert_eq!(config.shares.rate_per_user, Some(1_000_000));
    assert_eq!(config.security.tls, Some(TlsPolicy::Required));
    assert_eq!(config.security.certificate, Some("/c.pem".into()));
    assert_eq!(config.creation.umask, Some("022".parse().unwrap()));
    for comment in [
        "hiding of owners",
        "no limit of its own",
        "not known here",
        "#   /k.pem",
    ] {
        assert!(settings.contains(comment), "{comment}\n{settings}");
    }
    assert_nothing_is_lost(ForeignServer::Vsftpd, text, &settings);
}

#[test]
fn a_key_of_several_lines_names_them_all() {
    let text = "listen=YES\nlisten_port=2121\nlocal_enable=YES\npam_service_name=x\nwrite_enable=NO\n\
        pasv_min_port=5000\npasv_max_port=5100\ndirmessage_enable=YES\nmessage_file=.hello\n\
        ssl_enable=YES\nrsa_cert_file=/c.pem\nforce_local_logins_ssl=NO\nrequire_ssl_reuse=YES\n";
    let (config, settings) = imported(text);
    assert_eq!(config.data_ports, Some((5000, 5100)));
    assert_eq!(config.security.tls, Some(TlsPolicy::Optional));
    for origin in [
        "# line 1: listen=YES, line 2: listen_port=2121\n",
        "# line 3: local_enable=YES, line 4: pam_service_name=x\n",
        "# line 5: write_enable=NO\n",
        "# line 6: pasv_min_port=5000, line 7: pasv_max_port=5100\n",
        "# line 8: dirmessage_enable=YES, line 9: message_file=.hello\n",
        "# line 10: ssl_enable=YES, line 12: force_local_logins_ssl=NO\n",
        "# line 13: require_ssl_reuse=YES\n",
    ] {
        assert!(settings.contains(origin), "{origin}\n{settings}");
    }
    assert!(!settings.contains("needs no key"), "{settings}");
    let text = "DefaultAddress 192.0.2.1\nPort 2121\nTLSEngine on\nTLSRequired on\n";
    let (config, settings) = imported(text);
    assert_eq!(config.listen, "192.0.2.1:2121".parse().unwrap());
    for origin in [
        "# line 1: DefaultAddress 192.0.2.1, line 2: Port 2121\n",
        "# line 3: TLSEngine on, line 4: TLSRequired on\n",
        "# line 4: TLSRequired on\n",
    ] {
        assert!(settings.contains(origin), "{origin}\n{settings}");
    }
    let text = "port 2812\ncontrol_interface 192.0.2.1\n";
    let (_, settings) = imported(text);
    let origin = "# line 1: port 2812, line 2: control_interface 192.0.2.1\n";
    assert!(settings.contains(origin), "{settings}");
    let text = "NoAnonymous yes\nMaxClientsNumber 50\nIPV4Only yes\n";
    let (_, settings) = imported(text);
    assert!(settings.contains("# line 3: IPV4Only yes\n"), "{settings}");
}

#[test]
fn one_end_of_a_range_of_ports_is_left_to_the_administrator() {
    let (config, settings) = imported("listen=YES\npasv_min_port=50000\npasv_max_port=0\n");
    assert_eq!(config.data_ports, None);
    let asked = "#   line 2: pasv_min_port=50000\n#     data-ports needs a first and a last port";
    assert!(settings.contains(asked), "{settings}");
}

#[test]
fn a_translation_permits_no_more_than_the_original() {
    let text = "anonymous_enable=YES\nwrite_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=NO\nlocal_enable=YES\n";
    let (config, settings) = imported(text);
    assert_eq!(config.anonymous, Some(Anonymous::Ro));
    assert!(!config.security.clear_passwords);
    assert!(settings.contains("change and delete"), "{settings}");
    assert!(
        settings.contains("passwords are accepted over TLS only"),
        "{settings}"
    );
    let (config, _) = imported("local_enable=YES\nlisten=YES\n");
    assert_eq!(config.pam.rights, UnlistedRights::Ro);
}

#[test]
fn a_rate_of_anonymous_sessions_does_not_bind_users() {
    let text = "anonymous_enable=YES\nlocal_enable=YES\nanon_max_rate=30000\nlisten=YES\n";
    let (config, settings) = imported(text);
    assert_eq!(config.shares.rate_per_address, None);
    assert!(settings.contains("[user.anonymous]"), "{settings}");
    let (config, _) = imported(&text.replace("local_enable=YES", "local_enable=NO"));
    assert_eq!(config.shares.rate_per_address, Some(30_000));
    let text = "NoAnonymous no\nMaxClientsNumber 50\nAnonymousBandwidth 8\n";
    let (config, settings) = imported(text);
    assert_eq!(config.shares.rate_per_address, None);
    assert!(settings.contains("[user.anonymous]"), "{settings}");
}

#[test]
fn demands_of_encryption_are_not_lost() {
    let text = "anonymous_enable=YES\nlocal_enable=YES\nssl_enable=YES\nssl_tlsv1_2=YES\nrsa_cert_file=/c.pem\n";
    let (config, settings) = imported(text);
    assert_eq!(config.security.tls, Some(TlsPolicy::Optional));
    assert!(settings.contains("require-protection"), "{settings}");
    assert!(!settings.contains("not known here"), "{settings}");
}

/// pure-ftpd(8), -l.
#[test]
fn pure_ftpd_without_a_method_has_the_accounts_of_the_system() {
    let text = "NoAnonymous no\nMaxClientsNumber 50\nChrootEveryone yes\n";
    let (config, _) = imported(text);
    assert_eq!(config.pam.service.as_deref(), Some("pure-ftpd"));
    let (config, _) = imported(&format!("{text}PureDB /etc/pureftpd.pdb\n"));
    assert_eq!(config.pam.service, None);
}

#[test]
fn proftpd_with_sections() {
    let text = "ServerName \"Debian\"\nPort 21\nUser proftpd\nGroup nogroup\nUmask 022 022\nMaxInstances 30\n\
        <IfModule mod_tls.c>\nTLSEngine on\nTLSRequired on\nTLSRSACertificateFile /c.pem\n\
        TLSRSACertificateKeyFile /k.pem\n</IfModule>\nMaxClients 5 \"too many\"\n\
        <Limit LOGIN>\n  Allow from 192.0.2.0/24,198.51.100.7\n  DenyAll\n</Limit>\n\
        <Anonymous /srv/public>\n  User ftp\n  <Limit WRITE>\n    DenyAll\n  </Limit>\n</Anonymous>\n";
    assert_eq!(ForeignServer::of_text(text), Some(ForeignServer::Proftpd));
    let (config, settings) = imported(text);
    assert_eq!(
        config.run_as.as_deref(),
        Some("proftpd"),
        "not the User of the section"
    );
    assert_eq!(config.root, std::path::Path::new("/srv/public"));
    assert_eq!(config.anonymous, Some(Anonymous::Ro));
    assert_eq!(config.max_sessions, 5, "MaxClients is the smaller one");
    assert_eq!(config.security.tls, Some(TlsPolicy::Required));
    assert_eq!(config.access.allow_from.len(), 2);
    assert_nothing_is_lost(ForeignServer::Proftpd, text, &settings);
}

#[test]
fn continued_lines_are_one_and_keep_their_number() {
    let text =
        "# a comment \\\n# that goes on\nPassivePorts \\\n  50000 \\\n  50999\nTimeoutIdle 60\n";
    let (config, settings) = imported(text);
    assert_eq!(config.data_ports, Some((50_000, 50_999)));
    assert!(settings.contains("# line 6: TimeoutIdle 60"), "{settings}");
    assert!(settings.contains("# line 3: PassivePorts"), "{settings}");
}

#[test]
fn pure_ftpd_in_both_forms() {
    let text = "NoAnonymous yes\nPAMAuthentication yes\nMaxIdleTime 15\nUmask 133:022\nQuota 1000:10\n\
        AltLog clf:/var/log/t.log\nMinUID 1000\nTLS 1\nCertFileAndKey \"/c.pem\" \"/k k.pem\"\nBind 127.0.0.1,2121\n\
        PassivePortRange 30000 50000\nPerUserLimits 3:20\nUserBandwidth 1000\nAllowUserFXP no\n";
    assert_eq!(ForeignServer::of_text(text), Some(ForeignServer::PureFtpd));
    let (config, settings) = imported(text);
    assert_eq!(config.listen, "127.0.0.1:2121".parse().unwrap());
    assert_eq!(config.idle_timeout.as_secs(), 900);
    assert_eq!(config.creation.file_mode, Some("644".parse().unwrap()));
    assert_eq!(config.creation.directory_mode, Some("755".parse().unwrap()));
    assert_eq!(config.shares.quota.bytes, Some(10 << 20));
    assert_eq!(config.shares.rate_per_user, Some(1_024_000));
    assert_eq!(config.max_sessions_per_user, 3);
    assert_eq!(config.security.key, Some("/k k.pem".into()));
    assert_nothing_is_lost(ForeignServer::PureFtpd, text, &settings);
}

#[test]
fn globus_with_gsi() {
    let text = "$GLOBUS_TCP_PORT_RANGE 50000,51000\nport 2812\nallow_from 192.168.1.,10.\nperms 0640\n\
        log_transfer /var/log/gridftp-transfer.log\nbanner \"Example site\"\nrestrict_paths RW/data\ninetd 0\n";
    assert_eq!(ForeignServer::of_text(text), Some(ForeignServer::Globus));
    let (config, settings) = imported(text);
    assert_eq!(config.listen, "[::]:2812".parse().unwrap());
    assert_eq!(config.data_ports, Some((50_000, 51_000)));
    assert_eq!(config.root, std::path::Path::new("/data"));
    assert_eq!(config.messages.banner.as_deref(), Some("Example site"));
    assert!(
        settings.contains("[\"192.168.1.0/24\", \"10.0.0.0/8\"]"),
        "{settings}"
    );
    assert!(config.security.gridmap.is_some());
    assert_nothing_is_lost(ForeignServer::Globus, text, &settings);
}

#[test]
fn restricted_paths_of_globus_are_settings_or_told() {
    let text = "port 2811\nchroot_path /data\nrestrict_paths R/pub,N/secret\n";
    let (config, settings) = imported(text);
    assert_eq!(config.root, std::path::Path::new("/data"));
    assert_eq!(config.security.gridmap_rights, UnlistedRights::Ro);
    for told in [
        "line 3: restrict_paths R/pub,N/secret\n",
        "lost: /secret was closed, what no path names was closed;",
        "--read-only",
    ] {
        assert!(untranslated(&settings).contains(told), "{told}\n{settings}");
    }
    assert!(!settings.contains("/pub could"), "{settings}");
    let (config, settings) = imported(&text.replace("N/secret", "RW/in,W/drop"));
    assert_eq!(config.security.gridmap_rights, UnlistedRights::Rw);
    let told = "lost: /pub could only be read, /drop could only be written, what no path";
    assert!(untranslated(&settings).contains(told), "{settings}");
    let (config, settings) = imported("port 2811\nrestrict_paths R/data\nallow_anonymous 1\n");
    assert_eq!(config.root, std::path::Path::new("/data"));
    assert_eq!(config.security.gridmap_rights, UnlistedRights::Ro);
    assert!(!settings.contains("anonymous = \"rw\""), "{settings}");
    let (config, settings) = imported(&text.replace("R/pub,N/secret", "/pub"));
    assert_eq!(config.root, std::path::Path::new("/data/pub"));
    assert_eq!(config.security.gridmap_rights, UnlistedRights::Rw);
    let origin = "# line 2: chroot_path /data, line 3: restrict_paths /pub\n";
    assert!(settings.contains(origin), "{settings}");
}

#[test]
fn a_root_for_each_user_is_left_to_the_administrator() {
    for path in ["/srv/$USER", "/srv/NAME"] {
        let token = path.trim_start_matches("/srv/");
        let text = format!("local_enable=YES\nlocal_root={path}\nuser_sub_token={token}\n");
        let (config, settings) = imported(&text);
        assert_eq!(config.root, std::path::Path::new("/srv/ftp"));
        let told = format!("line 2: local_root={path}\n#     each user had a root: longhaul user");
        assert!(untranslated(&settings).contains(&told), "{settings}");
    }
}

#[test]
fn optional_tls_is_none_for_passwords() {
    let told = "accepted over TLS only, although tls is optional";
    let pure_ftpd = "PAMAuthentication yes\nMaxClientsNumber 50\nNoAnonymous yes\n";
    for text in [
        "local_enable=YES\nssl_enable=YES\nrsa_cert_file=/c.pem\nforce_local_logins_ssl=NO\n",
        &format!("{pure_ftpd}TLS 1\n"),
        "Port 21\nTLSEngine on\nTLSRequired off\nTLSRSACertificateFile /c.pem\n",
    ] {
        let (config, settings) = imported(text);
        assert_eq!(config.security.tls, Some(TlsPolicy::Optional));
        assert!(!config.security.clear_passwords);
        assert!(untranslated(&settings).contains(told), "{settings}");
    }
    let (config, settings) = imported(&format!("{pure_ftpd}TLS 2\n"));
    assert_eq!(config.security.tls, Some(TlsPolicy::Required));
    assert!(!settings.contains(told), "{settings}");
}

#[test]
fn files_of_pure_ftpd_are_named_and_empty_ones_told() {
    let files = [
        ("ForcePassiveIP", "\n"),
        ("MinUID", "# a comment\n1000\n"),
        ("PAMAuthentication", "yes\n"),
        ("PureDB", "/etc/pureftpd.pdb\n"),
    ];
    let files = files.map(|(name, content)| (name.to_owned(), content.to_owned()));
    let settings = ForeignServer::import_files(&files, "test", None).unwrap();
    let (config, settings) = read_back(settings);
    assert_eq!(config.pam.service.as_deref(), Some("pure-ftpd"));
    for shown in [
        "# file PAMAuthentication: yes\n",
        "# file MinUID: 1000\n",
        "#   file PureDB: /etc/pureftpd.pdb\n",
        "#   file ForcePassiveIP: (empty)\n#     it has no value there\n",
    ] {
        assert!(
            untranslated(&settings).contains(shown),
            "{shown}\n{settings}"
        );
    }
    assert!(!settings.contains("line "), "{settings}");
    let (_, settings) = imported("NoAnonymous yes\nMaxClientsNumber 50\nForcePassiveIP\n");
    let told = "#   line 3: ForcePassiveIP\n#     it has no value there\n";
    assert!(untranslated(&settings).contains(told), "{settings}");
    let files = [("README".to_owned(), String::new())];
    let error = ForeignServer::import_files(&files, "test", None);
    assert_eq!(error, Err(SettingsImportError::UnknownFormat));
}

#[test]
fn a_text_of_no_server_is_refused_and_hostile_values_stay_texts() {
    assert_eq!(
        import_settings("hello world\n", "x", None),
        Err(SettingsImportError::UnknownFormat)
    );
    assert_eq!(
        import_settings("", "x", None),
        Err(SettingsImportError::UnknownFormat)
    );
    let text =
        "listen=YES\nftpd_banner=a \"b\" \\ c\u{1}\u{7f}\nanonymous_enable=YES\nfoo\u{1}=\u{2}\n";
    let (config, _) = imported(text);
    assert_eq!(config.messages.banner.as_deref(), Some("a \"b\" \\ c??"));
}
