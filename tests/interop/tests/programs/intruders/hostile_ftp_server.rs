//! An FTP server that does what a hostile one may do to `longhaul cp`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVersion};
use security::gsi::{GsiAcceptor, GsiContext, GsiStep};
use security::tls::TlsConfig;
use security::x509::CertifiedKey;

const PATIENCE: Duration = Duration::from_secs(120);

/// Length of every file, bytes.
pub(super) const FILE_LENGTH: usize = 100_000;

/// How a data connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataEnd {
    /// All bytes, then close_notify.
    Complete,
    /// Half of the bytes, then the end of the TCP connection alone.
    CutInTheMiddle,
    /// The bytes are not inside TLS.
    Clear,
}

/// The behaviour of the server.
#[derive(Clone)]
pub(super) struct Mischief {
    /// Reply to AUTH; `None`: the connection ends.
    pub(super) auth: Option<&'static str>,
    /// TLS after AUTH TLS.
    pub(super) tls: Option<SslContext>,
    /// GSI after AUTH GSSAPI.
    pub(super) grid: Option<TlsConfig>,
    /// Replies are in the clear after GSI.
    pub(super) clear_replies: bool,
    /// Reply to PROT P.
    pub(super) prot: &'static str,
    /// The address in the reply to PASV, instead of the data port's.
    pub(super) passive_address: Option<SocketAddr>,
    /// Reply to SIZE, bytes.
    pub(super) size: usize,
    pub(super) data_end: DataEnd,
}

impl Mischief {
    /// A server with TLS of this context, which does nothing wrong.
    pub(super) fn none(tls: SslContext) -> Self {
        Self {
            auth: Some("234 go on"),
            tls: Some(tls),
            grid: None,
            clear_replies: false,
            prot: "200 ok",
            passive_address: None,
            size: FILE_LENGTH,
            data_end: DataEnd::Complete,
        }
    }
}

/// TLS of a server with this credential; `newest`: the newest version that it has.
pub(super) fn server_tls(
    credential: &CertifiedKey,
    newest: Option<SslVersion>,
) -> Result<SslContext> {
    let mut builder = SslContext::builder(SslMethod::tls_server())?;
    if newest.is_some() {
        builder.set_security_level(0);
        builder.set_cipher_list("ALL:@SECLEVEL=0")?;
        builder.set_min_proto_version(Some(SslVersion::TLS1))?;
        builder.set_max_proto_version(newest)?;
    }
    builder.set_certificate(credential.leaf())?;
    builder.set_private_key(credential.key())?;
    for certificate in credential.chain() {
        builder.add_extra_chain_cert(certificate.clone())?;
    }
    Ok(builder.build())
}

/// A listening server. Its threads end with their connections.
pub(super) struct HostileFtpServer {
    pub(super) address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

impl HostileFtpServer {
    pub(super) fn start(mischief: Mischief) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&commands);
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                let (mischief, seen) = (mischief.clone(), Arc::clone(&seen));
                // An error is the client's end, or what the test is about.
                std::thread::spawn(move || {
                    HostileSession::new(control, mischief, seen).and_then(HostileSession::talk)
                });
            }
        });
        Ok(Self { address, commands })
    }

    /// The commands of all clients so far, without protection.
    pub(super) fn commands(&self) -> Vec<String> {
        let commands = self.commands.lock();
        commands.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

enum HostileLayer {
    Clear(TcpStream),
    Tls(Box<SslStream<TcpStream>>),
    Grid(TcpStream, Box<GsiContext>),
    Ended,
}

struct HostileSession {
    layer: HostileLayer,
    mischief: Mischief,
    seen: Arc<Mutex<Vec<String>>>,
    passive: Option<TcpListener>,
    is_private: bool,
}

impl HostileSession {
    fn new(control: TcpStream, mischief: Mischief, seen: Arc<Mutex<Vec<String>>>) -> Result<Self> {
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            layer: HostileLayer::Clear(control),
            mischief,
            seen,
            passive: None,
            is_private: false,
        })
    }

    fn talk(mut self) -> Result<()> {
        self.reply("220 hello")?;
        while let Some(line) = self.line()? {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(line.clone());
            drop(seen);
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match verb {
                "AUTH" => self.authenticate(argument)?,
                "USER" => self.reply("331 password")?,
                "PASS" => self.reply("230 in")?,
                "FEAT" => self.reply("211-Features\r\n SIZE\r\n211 End")?,
                "TYPE" | "MODE" | "PBSZ" | "OPTS" | "NOOP" | "DCAU" => self.reply("200 ok")?,
                "PROT" => {
                    self.is_private = argument == "P" && self.mischief.prot.starts_with('2');
                    self.reply(self.mischief.prot)?;
                }
                "SIZE" => self.reply(&format!("213 {}", self.mischief.size))?,
                "PASV" => self.listen()?,
                "RETR" => self.send_file()?,
                "QUIT" => return self.reply("221 bye"),
                _ => self.reply("502 no")?,
            }
        }
        Ok(())
    }

    fn authenticate(&mut self, mechanism: &str) -> Result<()> {
        let Some(reply) = self.mischief.auth else {
            bail!("AUTH is dropped");
        };
        self.reply(reply)?;
        if !reply.starts_with(['2', '3']) {
            return Ok(());
        }
        let HostileLayer::Clear(stream) = std::mem::replace(&mut self.layer, HostileLayer::Ended)
        else {
            bail!("AUTH twice");
        };
        self.layer = match (mechanism, &self.mischief.tls, &self.mischief.grid) {
            ("TLS", Some(context), _) => {
                let tls = Ssl::new(context)?.accept(stream);
                HostileLayer::Tls(Box::new(tls.ok().context("no handshake")?))
            }
            ("GSSAPI", _, Some(config)) => accept_grid(stream, config)?,
            _ => bail!("no such mechanism"),
        };
        Ok(())
    }

    fn listen(&mut self) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let own = listener.local_addr()?;
        self.passive = Some(listener);
        let SocketAddr::V4(shown) = self.mischief.passive_address.unwrap_or(own) else {
            bail!("no IPv4 address");
        };
        let [a, b, c, d] = shown.ip().octets();
        let (high, low) = (shown.port() >> 8, shown.port() & 255);
        self.reply(&format!("227 ({a},{b},{c},{d},{high},{low})"))
    }

    fn send_file(&mut self) -> Result<()> {
        let listener = self.passive.take().context("no PASV")?;
        self.reply("150 here it comes")?;
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let bytes = vec![b'x'; FILE_LENGTH];
        let end = self.mischief.data_end;
        match (&self.mischief.tls, self.is_private, end) {
            (Some(context), true, DataEnd::Complete | DataEnd::CutInTheMiddle) => {
                let mut tls = Ssl::new(context)?.accept(stream).ok().context("no TLS")?;
                match end {
                    DataEnd::Complete => {
                        tls.write_all(&bytes)?;
                        tls.shutdown()?;
                        // The client ends its direction, too.
                        let _ = tls.read(&mut [0]);
                    }
                    _ => tls.write_all(&bytes[..FILE_LENGTH / 2])?,
                }
            }
            _ => stream.write_all(&bytes)?,
        }
        self.reply("226 all of it")
    }

    fn reply(&mut self, text: &str) -> Result<()> {
        let line = format!("{text}\r\n");
        match &mut self.layer {
            HostileLayer::Clear(stream) => stream.write_all(line.as_bytes())?,
            HostileLayer::Tls(tls) => tls.write_all(line.as_bytes())?,
            HostileLayer::Grid(stream, _) if self.mischief.clear_replies => {
                stream.write_all(line.as_bytes())?;
            }
            HostileLayer::Grid(stream, context) => {
                let token = BASE64.encode(context.wrap(line.as_bytes())?);
                stream.write_all(format!("633 {token}\r\n").as_bytes())?;
            }
            HostileLayer::Ended => bail!("the session has ended"),
        }
        Ok(())
    }

    /// The next command; `None` at the end.
    fn line(&mut self) -> Result<Option<String>> {
        let line = match &mut self.layer {
            HostileLayer::Clear(stream) | HostileLayer::Grid(stream, _) => read_line(stream)?,
            HostileLayer::Tls(tls) => read_line(tls.as_mut())?,
            HostileLayer::Ended => None,
        };
        let (HostileLayer::Grid(_, context), Some(line)) = (&mut self.layer, &line) else {
            return Ok(line);
        };
        let (_, token) = line.split_once(' ').context("a command in the clear")?;
        let plain = context.unwrap(&BASE64.decode(token)?)?;
        Ok(Some(String::from_utf8(plain)?.trim_end().to_owned()))
    }
}

/// A line, read byte by byte so that nothing behind it is taken.
fn read_line(from: &mut impl Read) -> Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte)? == 1 {
        if byte[0] == b'\n' {
            return Ok(Some(String::from_utf8(line)?.trim_end().to_owned()));
        }
        line.push(byte[0]);
    }
    Ok(None)
}

fn accept_grid(mut stream: TcpStream, config: &TlsConfig) -> Result<HostileLayer> {
    let mut acceptor = GsiAcceptor::new(config, false)?;
    loop {
        let line = read_line(&mut stream)?.context("the client has left")?;
        let token = line.strip_prefix("ADAT ").context("no ADAT")?;
        let (reply, context) = match acceptor.step(&BASE64.decode(token)?)? {
            GsiStep::Continue(token) => (format!("335 ADAT={}", BASE64.encode(token)), None),
            GsiStep::Complete(token, context) => {
                ensure!(token.is_none(), "a last token");
                ("235 ok".to_owned(), Some(context))
            }
        };
        stream.write_all(format!("{reply}\r\n").as_bytes())?;
        if let Some(context) = context {
            return Ok(HostileLayer::Grid(stream, context));
        }
    }
}
