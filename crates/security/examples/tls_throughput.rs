//! Rate of the TLS engine in memory, in one thread: one end encrypts, the other decrypts.
//! Usage: `cargo run --release -p security --example tls_throughput [GIGABYTES]`

#![expect(clippy::print_stdout, reason = "the figures are its purpose")]

use std::error::Error;
use std::time::{Duration, Instant};

use security::tls::{
    Handshake, ReadResult, TlsConfig, TlsEngine, TlsError, TlsOptions, TlsVersion,
};
use security::x509::CertifiedKey;

/// Bytes of one write and one read.
const BLOCK: usize = 256 << 10;

/// TLS 1.3 alone.
fn config(options: TlsOptions) -> Result<TlsConfig, TlsError> {
    TlsConfig::new(TlsOptions {
        oldest: TlsVersion::V1_3,
        ..options
    })
}

/// Moves what one end has to send to the other, in pieces as a socket gives them.
fn pass(from: &mut TlsEngine, to: &mut TlsEngine) -> usize {
    let waiting = from.outgoing();
    let moved = to.receive_with(|space| {
        let count = space.len().min(waiting.len());
        space[..count].copy_from_slice(&waiting[..count]);
        Ok::<_, std::convert::Infallible>(count)
    });
    let count = moved.unwrap_or_default();
    from.mark_sent(count);
    count
}

fn main() -> Result<(), Box<dyn Error>> {
    let gigabytes: usize = std::env::args().nth(1).map_or(Ok(2), |a| a.parse())?;
    let credential =
        CertifiedKey::self_signed(&["localhost".to_owned()], Duration::from_secs(3600))?;
    let server = config(
        TlsOptions::server()
            .with_credential(credential)
            .with_tickets(),
    )?;
    let client = config(TlsOptions::client().unverified())?;

    let start = Instant::now();
    let handshakes = 200;
    for _ in 0..handshakes {
        connect(&client, &server)?;
    }
    let rate = f64::from(handshakes) / start.elapsed().as_secs_f64();
    println!("{rate:.0} full handshakes (both ends) per second");

    let (mut sender, mut receiver) = connect(&client, &server)?;
    println!("{}", sender.description());
    let plain = vec![7u8; BLOCK];
    let mut space = vec![0u8; BLOCK];
    let total = gigabytes * 1_000_000_000;
    let (mut encrypting, mut decrypting) = (Duration::ZERO, Duration::ZERO);
    let mut received = 0;
    let start = Instant::now();
    while received < total {
        let begin = Instant::now();
        sender.write(&plain)?;
        encrypting += begin.elapsed();
        while pass(&mut sender, &mut receiver) > 0 {
            let begin = Instant::now();
            while let ReadResult::Bytes(count) = receiver.read(&mut space)? {
                received += count;
            }
            decrypting += begin.elapsed();
        }
    }
    let rate = |time: Duration| received as f64 / time.as_secs_f64() / 1e9;
    println!("encrypting {:.2} GB/s", rate(encrypting));
    println!("decrypting {:.2} GB/s", rate(decrypting));
    println!("end to end {:.2} GB/s in one thread", rate(start.elapsed()));
    Ok(())
}

fn connect(
    client: &TlsConfig,
    server: &TlsConfig,
) -> Result<(TlsEngine, TlsEngine), Box<dyn Error>> {
    let mut client = TlsEngine::new(client, None)?;
    let mut server = TlsEngine::new(server, None)?;
    loop {
        let states = (client.handshake()?, server.handshake()?);
        let moved = pass(&mut client, &mut server) + pass(&mut server, &mut client);
        if states == (Handshake::Complete, Handshake::Complete) && moved == 0 {
            return Ok((client, server));
        }
    }
}
