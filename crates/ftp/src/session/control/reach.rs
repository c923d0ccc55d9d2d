//! The way to a server: directly, through a proxy, or by ssh.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use data::tunnel::{DataRoute, TunnelFailure, TunnelRoute};
use proto::tunnel::{TunnelError, TunnelTarget};
use tokio::time::timeout;

use super::dialogue::log_proxy;
use crate::location::{Scheme, Server};
use crate::network_proxy::{NetworkProxy, ProxyScheme, proxy_failure};
use crate::ssh::{
    CarriedLogin, FarEndCleanup, SshChannel, SshEnd, SshLogin, SshRun, SshTarget, begin_session,
    begin_sshftp, clean,
};
use crate::{Failure, FailureKind};

/// A new connection, before its first byte.
pub(crate) struct ReachedServer {
    pub transport: ControlTransport,
    /// The server's address. Behind a proxy that was given a name it is unspecified.
    pub peer: SocketAddr,
    /// This end's address; `None`: the socket's.
    pub(crate) local: Option<SocketAddr>,
    /// The way of data connections; `None`: they are direct.
    pub(crate) route: Option<Arc<DataRoute>>,
    /// The login of ssh that carries it.
    pub(crate) carried_by: Option<CarriedLogin>,
    /// Duration of the TCP handshake; behind a proxy that of its last reply.
    pub rtt: Duration,
}

/// Connects to a server as all sessions do: through the proxy that the user or the environment chose for it.
///
/// # Errors
/// `Unreachable`; `Usage`: the environment names no valid proxy; `Refused`: the proxy does not allow it.
pub async fn connect_to_server(
    server: &Server,
    reply_timeout: Duration,
) -> Result<ControlTransport, Failure> {
    let reached = reach(server, reply_timeout).await?;
    Ok(reached.transport)
}

/// Connects to the first address of the name that accepts.
pub(crate) async fn reach(
    server: &Server,
    reply_timeout: Duration,
) -> Result<ReachedServer, Failure> {
    if server.scheme.is_ssh() {
        // Its own configuration says how hosts are reached.
        return reach_by_ssh(server, reply_timeout).await;
    }
    let choice = &server.security.options().proxy;
    match choice.proxy_for(server.scheme.name(), &server.host)? {
        Some(proxy) => reach_through(server, &proxy, reply_timeout).await,
        None => reach_directly(server, reply_timeout).await,
    }
}

async fn reach_directly(
    server: &Server,
    reply_timeout: Duration,
) -> Result<ReachedServer, Failure> {
    let name = server.host_and_port();
    let mut reason = String::from("the name has no address");
    // A refusal (RST) is final: most likely nothing listens there.
    let mut all_refused = true;
    // A name with several addresses may have some that do not answer.
    for address in resolve((&server.host, server.port), &name, reply_timeout).await? {
        let start = Instant::now();
        match timeout(reply_timeout, ControlTransport::connect(address)).await {
            Ok(Ok(transport)) => {
                return Ok(ReachedServer {
                    transport,
                    peer: address,
                    local: None,
                    route: None,
                    carried_by: None,
                    rtt: start.elapsed(),
                });
            }
            Ok(Err(error)) => {
                // Only if every address refused is it pointless to try again.
                all_refused &= error.kind() == std::io::ErrorKind::ConnectionRefused;
                reason = format!("{error}");
            }
            Err(_) => {
                all_refused = false;
                reason = format!("no answer in {} s", reply_timeout.as_secs());
            }
        }
        // The address is shown only where it differs from the name that the user typed.
        if !name.contains(&address.ip().to_string()) {
            reason = format!("{} ({reason})", address.ip());
        }
    }
    let reason = format!("cannot connect to {name}: {reason}");
    let failure = Failure::new(FailureKind::Unreachable, reason)
        .retried(!all_refused)
        .advise("check host and port, and that the server runs");
    Err(match server.other_port_advice() {
        Some(advice) => failure.remark(advice),
        None => failure,
    })
}

/// Removes the programs of longhaul that were put into the cache directory of an ssh: server.
///
/// # Errors
/// `Usage`: it is another server; otherwise as when a session begins.
pub async fn clean_far_end(
    server: &Server,
    reply_timeout: Duration,
) -> Result<FarEndCleanup, Failure> {
    if server.scheme != Scheme::Ssh {
        return Err(Failure::usage("longhaul is put to ssh: servers only"));
    }
    let target = ssh_target(server);
    clean(&ssh_end(server, &target, reply_timeout)).await
}

/// Starts a program at the far end of a server that ssh leads to.
///
/// # Errors
/// `Local`: there is no ssh; `Usage`: it refuses its configuration, or the name; `SessionLimit`: the shared login has no place left. That
/// the login fails is seen by the end of the channel: see [`SshChannel::failure`].
pub async fn open_ssh_channel(
    server: &Server,
    run: SshRun,
    login: SshLogin,
    reply_timeout: Duration,
) -> Result<SshChannel, Failure> {
    let target = ssh_target(server);
    ssh_end(server, &target, reply_timeout)
        .open(run, login)
        .await
}

fn ssh_target(server: &Server) -> SshTarget {
    SshTarget {
        host: server.host.clone(),
        port: Some(server.port).filter(|port| *port != server.scheme.default_port()),
        user: server.credential.user().map(str::to_owned),
    }
}

fn ssh_end<'a>(server: &'a Server, target: &'a SshTarget, reply_timeout: Duration) -> SshEnd<'a> {
    SshEnd {
        logins: server.security.ssh_logins(),
        program: &server.security.options().ssh,
        target,
        reply_timeout,
    }
}

async fn reach_by_ssh(server: &Server, reply_timeout: Duration) -> Result<ReachedServer, Failure> {
    let target = ssh_target(server);
    let end = ssh_end(server, &target, reply_timeout);
    let options = server.security.options();
    let mut session = match server.scheme {
        Scheme::Sshftp => begin_sshftp(&end).await?,
        _ => {
            let session = begin_session(&end, &options.far_end, options.data_ports);
            // Its key takes a while, and ssh waits for the network most of the time. An error shows when it is used.
            let credential = server.security.data_credential();
            tokio::join!(session, credential).0?
        }
    };
    let own = session.ends.server;
    let ip = match &session.login.direct_host() {
        // Its own address, if its name leads there; with NAT on the way that of its name.
        Some(name) => {
            let found = resolve((name, server.port), name, reply_timeout).await;
            let found = found.unwrap_or_default();
            let mut ips = found.iter().map(|address| address.ip().to_canonical());
            match own {
                Some(own) if ips.clone().any(|ip| ip == own) => Some(own),
                own => ips.next().or(own),
            }
        }
        None => own,
    };
    // Where nobody knows it, no port can be reached.
    let ip = ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    let (local, peer) = (local_address_to(ip), SocketAddr::new(ip, server.port));
    let memory = server.security.ssh_logins().port_memory();
    session.search_ports(local, peer, memory);
    Ok(ReachedServer {
        transport: session.transport,
        peer,
        local: Some(SocketAddr::new(local, 0)),
        route: None,
        // Another server's data is beside ssh, or nowhere.
        carried_by: (server.scheme == Scheme::Ssh).then_some(session.login),
        rtt: session.after,
    })
}

/// The address from which this machine reaches a host.
fn local_address_to(peer: IpAddr) -> IpAddr {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent: connecting a UDP socket only looks up the route.
    let route = UdpSocket::bind((any, 0)).and_then(|socket| {
        // Any port (discard).
        socket.connect((peer, 9))?;
        socket.local_addr()
    });
    route.map_or(any, |address| address.ip())
}

/// Connects through the first address of the proxy that answers.
async fn reach_through(
    server: &Server,
    proxy: &NetworkProxy,
    reply_timeout: Duration,
) -> Result<ReachedServer, Failure> {
    if proxy.scheme == ProxyScheme::Https {
        return Err(Failure::usage(format!(
            "the proxy {proxy} is reached over TLS, which only http: and https: URLs can do: give an http: or socks5: \
             proxy with --proxy, or --proxy none"
        )));
    }
    let name = server.host_and_port();
    let targets = targets(server, proxy, reply_timeout).await?;
    let proxy_name = format!("the proxy {proxy}");
    let addresses = resolve((&proxy.host, proxy.port), &proxy_name, reply_timeout).await?;
    let mut failure = TunnelFailure::NoProxy(std::io::ErrorKind::AddrNotAvailable.into());
    'addresses: for at in addresses {
        for target in &targets {
            let dialogue = proxy.service.dialogue(target);
            let connecting = ControlTransport::connect_through(at, dialogue);
            let connected = timeout(reply_timeout, connecting).await;
            failure = match connected.unwrap_or(Err(TunnelFailure::TimedOut)) {
                Ok((transport, rtt)) => {
                    log_proxy(&name, proxy);
                    let server_ip = target.ip().unwrap_or(Ipv6Addr::UNSPECIFIED.into());
                    let route = TunnelRoute {
                        proxy: Arc::clone(&proxy.service),
                        at,
                        server: target.clone(),
                        server_ip,
                    };
                    return Ok(ReachedServer {
                        transport,
                        peer: SocketAddr::new(server_ip, server.port),
                        local: None,
                        route: Some(Arc::new(DataRoute::Proxy(route))),
                        carried_by: None,
                        rtt,
                    });
                }
                Err(other) => other,
            };
            match &failure {
                TunnelFailure::NoProxy(_) => continue 'addresses,
                TunnelFailure::Refused(
                    TunnelError::ServerRefused | TunnelError::Unreachable(_),
                )
                | TunnelFailure::TimedOut => {}
                // Another address of the server would change nothing.
                TunnelFailure::Refused(_) | TunnelFailure::Lost(_) => break 'addresses,
            }
        }
    }
    Err(proxy_failure(&name, &proxy.to_string(), &failure))
}

/// The hosts that the proxy is asked for: the server's name, or its addresses.
async fn targets(
    server: &Server,
    proxy: &NetworkProxy,
    reply_timeout: Duration,
) -> Result<Vec<TunnelTarget>, Failure> {
    let named = TunnelTarget::new(&server.host, server.port);
    let named = named
        .map_err(|problem| Failure::usage(format!("{problem} ({})", server.host_and_port())))?;
    if named.ip().is_some() || !proxy.resolves_here() {
        return Ok(vec![named]);
    }
    let name = server.host_and_port();
    let addresses = resolve((&server.host, server.port), &name, reply_timeout).await;
    let addresses =
        addresses.map_err(|failure| failure.remark("with socks5h:// the proxy finds it"))?;
    let targets = addresses.iter();
    Ok(targets
        .map(|address| TunnelTarget::at(address.ip(), address.port()))
        .collect())
}

/// The address of a host according to this machine.
pub(crate) async fn address_of(
    server: &Server,
    reply_timeout: Duration,
) -> Result<IpAddr, Failure> {
    let name = server.host_and_port();
    let addresses = resolve((&server.host, server.port), &name, reply_timeout).await?;
    let first = addresses.first().map(|address| address.ip().to_canonical());
    first.ok_or_else(|| {
        Failure::new(
            FailureKind::Unreachable,
            format!("the name {name} has no address"),
        )
    })
}

async fn resolve(
    host_and_port: (&str, u16),
    name: &str,
    reply_timeout: Duration,
) -> Result<Vec<SocketAddr>, Failure> {
    let lookup = tokio::net::lookup_host(host_and_port);
    let reason = match timeout(reply_timeout, lookup).await {
        Ok(Ok(addresses)) => return Ok(addresses.collect()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer in {} s", reply_timeout.as_secs()),
    };
    // A name that cannot be resolved is final: trying again rarely helps.
    Err(Failure::new(
        FailureKind::Unreachable,
        format!("cannot find the address of {name}: {reason}; check the host name"),
    ))
}
