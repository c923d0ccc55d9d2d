//! `longhaul ssh`: what longhaul leaves at the far ends of ssh: URLs.

use std::sync::Arc;

use copy::{ConnectionSecurity, Failure, SecurityOptions};
use ftp::location::Location;

use crate::args::{SshVerb, SshVerbArgs};
use crate::output::{ignore_broken_pipe, print_listing_line, print_to_stderr};

pub(crate) async fn run(args: &SshVerbArgs) -> Result<(), Failure> {
    let SshVerb::Clean { host } = &args.verb;
    let options = SecurityOptions {
        ssh: args.ssh.command(),
        ..SecurityOptions::default()
    };
    let warn = |text: &str| print_to_stderr(&format!("longhaul: warning: {text}"));
    let security = ConnectionSecurity::with_remotes(options, args.remotes(), Arc::new(warn))?;
    let url = match host.contains("://") || security.remotes().name_in(host).is_some() {
        true => host.clone(),
        false => format!("ssh://{host}/"),
    };
    let Location::Remote { server, .. } = Location::parse_secured(&url, &security)? else {
        return Err(Failure::usage("give a host: HOST or ssh://USER@HOST:PORT"));
    };
    let cleanup = ftp::clean_far_end(&server, args.timeout).await?;
    for kept in &cleanup.kept {
        print_to_stderr(&format!(
            "longhaul: {kept} stays: it is a link, or has other files"
        ));
    }
    if cleanup == ftp::FarEndCleanup::default() {
        print_to_stderr("longhaul has put nothing there");
    }
    for removed in &cleanup.removed {
        let printed = print_listing_line(format!("removed {removed}").as_bytes());
        if printed.is_err() {
            return ignore_broken_pipe(printed);
        }
    }
    Ok(())
}
