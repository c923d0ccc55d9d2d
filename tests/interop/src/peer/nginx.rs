//! nginx with WebDAV, with and without TLS.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;
use crate::pki::authority::PeerCertificate;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("nginx", "usr/sbin/nginx")
}

/// Path of the module for PROPFIND.
fn module() -> Result<PathBuf, String> {
    find_unpacked(
        "libnginx-mod-http-dav-ext",
        "usr/lib/nginx/modules/ngx_http_dav_ext_module.so",
    )
}

/// Serves the store on 127.0.0.1; with an identity over TLS.
pub fn start(store: &TestStore, identity: Option<&PeerCertificate>) -> Result<PeerServer> {
    let port = net::free_port()?;
    let own = store.path("nginx.d");
    std::fs::create_dir_all(&own)?;
    let tls = identity.map_or_else(String::new, |identity| {
        format!(
            "ssl_certificate {}; ssl_certificate_key {};",
            identity.certificate.display(),
            identity.key.display()
        )
    });
    // The default limit of a request body is 1 MB; 0 removes it.
    let settings = format!(
        "load_module {module};\nuser root;\ndaemon off;\npid {own}/pid;\nerror_log {own}/log;\nevents {{}}\n\
         http {{\n access_log off; client_max_body_size 0; dav_ext_lock_zone zone=locks:1m;\n\
         client_body_temp_path {own}/b; proxy_temp_path {own}/p; fastcgi_temp_path {own}/f;\n\
         uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;\n\
         server {{ listen {host}:{port}{ssl}; {tls} root {root};\n\
         dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; }}\n}}\n",
        module = module().map_err(anyhow::Error::msg)?.display(),
        own = own.display(),
        host = net::HOST,
        ssl = if identity.is_some() { " ssl" } else { "" },
        root = store.root().display(),
    );
    let file = store.scratch().file("nginx.conf", settings.as_bytes())?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.arg("-p").arg(&own).arg("-c").arg(file);
    PeerServer::start(&mut command, store, "nginx", port)
}
