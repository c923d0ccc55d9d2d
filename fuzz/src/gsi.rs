//! GSI exchanges in which one end hears something else than the other has said.

use std::sync::LazyLock;

use security::gsi::{Delegation, GsiAcceptor, GsiContext, GsiInitiator, GsiStep};
use security::tls::{TlsConfig, TlsProfile, TlsRole};

use crate::Tampering;
use crate::pki::{PKI, config};

/// The end that is tested: tokens to it are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestedEnd {
    /// The server's.
    Acceptor,
    /// The client's.
    Initiator,
}

static CLIENT: LazyLock<TlsConfig> = LazyLock::new(|| config(TlsRole::Client, TlsProfile::Grid));
static SERVER: LazyLock<TlsConfig> = LazyLock::new(|| config(TlsRole::Server, TlsProfile::Grid));

/// Rounds of an exchange at most. A genuine one has four.
const MOST_ROUNDS: usize = 12;

const STAYS_FAILED: &str = "an exchange that has failed stays so";

/// Runs an exchange. The first byte of the input selects whether a proxy is delegated.
///
/// # Panics
/// An end accepts what nobody has said, or goes on after a failure.
pub fn run_exchange(tested: TestedEnd, input: &[u8]) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    // The acceptor makes an RSA key for each delegation, which is slow: one value alone.
    let delegation = match first {
        255 => Delegation::Limited { seconds: 600 },
        _ => Delegation::None,
    };
    let mut tampering = Tampering::new(rest);
    let mut exchange = FuzzedExchange {
        initiator: GsiInitiator::new(&CLIENT, delegation).expect("a client"),
        acceptor: GsiAcceptor::new(&SERVER, true).expect("a server"),
        client: None,
        server: None,
    };
    exchange.run(tested, &mut tampering);
    let context = match tested {
        TestedEnd::Acceptor => exchange.server,
        TestedEnd::Initiator => exchange.client,
    };
    let Some(mut context) = context else {
        assert!(tampering.has_changed(), "a genuine exchange completes");
        return;
    };
    let genuine = match tested {
        TestedEnd::Acceptor => &PKI.user,
        TestedEnd::Initiator => &PKI.host,
    };
    assert_eq!(context.peer().identity, genuine.identity());
    // Nobody but the other end can make a message.
    if let Ok(plain) = context.unwrap(tampering.rest()) {
        assert!(plain.is_empty(), "a message that nobody has sent");
    }
}

struct FuzzedExchange {
    initiator: GsiInitiator,
    acceptor: GsiAcceptor,
    client: Option<Box<GsiContext>>,
    server: Option<Box<GsiContext>>,
}

impl FuzzedExchange {
    fn run(&mut self, tested: TestedEnd, tampering: &mut Tampering) {
        let mut received: Option<Vec<u8>> = None;
        for round in 0..MOST_ROUNDS {
            let mut token = self.initiate(received.as_deref(), tested);
            if tested == TestedEnd::Acceptor {
                token = Some(tampering.apply(&token.unwrap_or_default()));
            }
            let Some(token) = token else { return };
            let mut answer = self.accept(&token, tested);
            if tested == TestedEnd::Initiator && self.client.is_none() {
                answer = Some(tampering.apply(&answer.unwrap_or_default()));
            }
            let is_over = match tested {
                TestedEnd::Acceptor => self.server.is_some() || answer.is_none(),
                TestedEnd::Initiator => self.client.is_some(),
            };
            if is_over {
                return;
            }
            received = Some(answer.unwrap_or_default());
            // Without input left, the ends only repeat themselves.
            if tampering.rest().is_empty() && round > 6 {
                return;
            }
        }
    }

    /// The initiator's next token; `None`: it has failed or is complete without one.
    fn initiate(&mut self, received: Option<&[u8]>, tested: TestedEnd) -> Option<Vec<u8>> {
        let step = self.initiator.step(received);
        if step.is_err() && tested == TestedEnd::Initiator {
            assert!(self.initiator.step(received).is_err(), "{STAYS_FAILED}");
        }
        output(step.ok()?, &mut self.client)
    }

    /// The acceptor's next token, in the same way.
    fn accept(&mut self, token: &[u8], tested: TestedEnd) -> Option<Vec<u8>> {
        let step = self.acceptor.step(token);
        if step.is_err() && tested == TestedEnd::Acceptor {
            assert!(self.acceptor.step(token).is_err(), "{STAYS_FAILED}");
        }
        output(step.ok()?, &mut self.server)
    }
}

/// The token of a step. The context of the last one is kept.
fn output(step: GsiStep, context: &mut Option<Box<GsiContext>>) -> Option<Vec<u8>> {
    match step {
        GsiStep::Continue(token) => Some(token),
        GsiStep::Complete(token, complete) => {
            *context = Some(complete);
            token
        }
    }
}
