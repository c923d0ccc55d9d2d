//! Both ends of an exchange in memory.

mod data_connections;
mod exchanges;
mod messages;

use super::*;
use crate::tls::tests::{Pki, config};
use crate::tls::{ExpectedPeer, TlsOptions, TlsProfile, TlsVersion};

const VERSIONS: [TlsVersion; 2] = [TlsVersion::V1_2, TlsVersion::V1_3];

/// A client and a server of the grid.
fn grid_options(pki: &Pki) -> (TlsOptions, TlsOptions) {
    let (client, server) = (pki.user(TlsProfile::Grid), pki.asking(TlsProfile::Grid));
    (client, server)
}

fn ends(pki: &Pki, version: TlsVersion, delegation: Delegation) -> (GsiInitiator, GsiAcceptor) {
    let (client, server) = grid_options(pki);
    (
        GsiInitiator::new(&config(client, version), delegation).unwrap(),
        GsiAcceptor::new(&config(server, TlsVersion::V1_3), true).unwrap(),
    )
}

/// The contexts of both ends, and the number of tokens of the initiator.
struct Established {
    client: GsiContext,
    server: GsiContext,
    tokens: usize,
}

fn exchange(initiator: &mut GsiInitiator, acceptor: &mut GsiAcceptor) -> Established {
    try_exchange(initiator, acceptor).unwrap()
}

fn try_exchange(
    initiator: &mut GsiInitiator,
    acceptor: &mut GsiAcceptor,
) -> Result<Established, GsiError> {
    let mut step = initiator.step(None)?;
    let mut tokens = 0;
    loop {
        let (token, client) = match step {
            GsiStep::Continue(token) => (token, None),
            GsiStep::Complete(token, client) => (token.unwrap(), Some(client)),
        };
        tokens += 1;
        match (acceptor.step(&token)?, client) {
            (GsiStep::Continue(token), None) => step = initiator.step(Some(&token))?,
            (GsiStep::Complete(None, server), Some(client)) => {
                let (client, server) = (*client, *server);
                return Ok(Established {
                    client,
                    server,
                    tokens,
                });
            }
            (other, client) => panic!("the ends disagree: {other:?}, {client:?}"),
        }
    }
}

fn established(pki: &Pki, version: TlsVersion) -> Established {
    let (mut initiator, mut acceptor) = ends(pki, version, Delegation::None);
    exchange(&mut initiator, &mut acceptor)
}
