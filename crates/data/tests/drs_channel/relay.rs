//! A relay between the two ends of a DRS channel, which records the messages.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use data::drs::DrsEndpoint;
use parking_lot::Mutex;

use crate::end_under_test::HERE;

/// Messages of one connection.
#[derive(Debug, Default, Clone)]
pub(crate) struct RelayedDialogue {
    /// From the connecting end.
    pub(crate) from_connecting: String,
    /// From the listening end.
    pub(crate) from_listening: String,
}

/// Stands between a listening endpoint and a connecting one that it makes.
pub(crate) struct DrsRelay {
    /// Connects to the relay as if it were the other end.
    pub(crate) endpoint: Arc<DrsEndpoint>,
    dialogues: Arc<Mutex<Vec<RelayedDialogue>>>,
    cut: Option<usize>,
}

impl DrsRelay {
    /// `cut`: closes both connections after this many lines from the listening end.
    pub(crate) fn new(to: &DrsEndpoint, cut: Option<usize>) -> Self {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Arc::new(DrsEndpoint::connect(address, to.address().nonce));
        let dialogues = Arc::new(Mutex::new(Vec::new()));
        let relay = Self {
            endpoint,
            dialogues: Arc::clone(&dialogues),
            cut,
        };
        let to = to.address().socket;
        // Ends with the test process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                relay_connection(connection.unwrap(), to, cut, &dialogues);
            }
        });
        relay
    }

    /// The recorded messages, one entry per connection.
    pub(crate) fn dialogues(&self) -> Vec<RelayedDialogue> {
        self.dialogues.lock().clone()
    }

    /// Whether it has closed a dialogue.
    pub(crate) fn was_cut(&self) -> bool {
        let dialogues = self.dialogues();
        dialogues.iter().any(|one| is_cut(one, self.cut))
    }
}

fn is_cut(one: &RelayedDialogue, cut: Option<usize>) -> bool {
    cut.is_some_and(|lines| one.from_listening.matches('\n').count() >= lines)
}

fn relay_connection(
    connecting: TcpStream,
    to: SocketAddr,
    cut: Option<usize>,
    dialogues: &Arc<Mutex<Vec<RelayedDialogue>>>,
) {
    let listening = TcpStream::connect(to).unwrap();
    let number = dialogues.lock().len();
    dialogues.lock().push(RelayedDialogue::default());
    let pass = |mut from: TcpStream, mut to: TcpStream, from_listening: bool| {
        let dialogues = Arc::clone(dialogues);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut dialogues = dialogues.lock();
                let one = &mut dialogues[number];
                let text = if from_listening {
                    &mut one.from_listening
                } else {
                    &mut one.from_connecting
                };
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                if is_cut(one, cut) || to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    let again = |stream: &TcpStream| stream.try_clone().unwrap();
    pass(again(&connecting), again(&listening), false);
    pass(listening, connecting, true);
}
