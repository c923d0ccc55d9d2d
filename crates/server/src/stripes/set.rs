//! The data nodes of one session's transfers: a connection to each.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::channel::ListenOptions;
use data::transport::ControlTransport;
use proto::stripes::StripeAddresses;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message::VERSION;
use super::{
    FrontMessage, NodeConnection, NodeDirectory, NodeFailure, NodeListen, NodeLoad, NodeMessage,
};
use crate::secure::SecurityMaterial;

/// Longest wait for a node to be reached and to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Most stripes of one transfer at one node.
const MOST_OF_A_NODE: usize = 4;
/// Messages that wait for the other side, of each node.
const QUEUE: usize = 64;

/// A front end's access to its nodes.
#[derive(Debug, Clone)]
pub(crate) struct NodeAccess {
    /// Host and port of each.
    pub(crate) nodes: Vec<String>,
    /// Which of them have failed.
    pub(crate) directory: Arc<NodeDirectory>,
    /// The certificate and authorities.
    pub(crate) material: Arc<SecurityMaterial>,
}

/// A node that serves.
#[derive(Debug)]
struct ReachedNode {
    /// Host and port.
    name: String,
    connection: NodeConnection,
    load: NodeLoad,
}

/// The nodes that carry out one session's transfers, in the order of the stripes.
#[derive(Debug)]
pub(crate) struct StripeSet {
    nodes: Vec<StripeNode>,
    /// Messages with the number of their node; `None`: the node is lost.
    events: mpsc::Receiver<(usize, Option<NodeMessage>)>,
    directory: Arc<NodeDirectory>,
}

/// A node of a set.
#[derive(Debug)]
pub(crate) struct StripeNode {
    /// Host and port.
    pub(crate) name: String,
    messages: mpsc::Sender<FrontMessage>,
}

impl StripeSet {
    /// Connects to nodes for `stripes` stripes: to one each if there are as many, to the least loaded if there are more nodes, else to some of
    /// them several times.
    ///
    /// # Errors
    /// None can be reached.
    pub(crate) async fn for_stripes(access: &NodeAccess, stripes: usize) -> io::Result<Self> {
        let mut reached = reach_all(access).await?;
        if stripes != reached.len() {
            access
                .directory
                .sort_by_load(&mut reached, |node| node.load);
        }
        if stripes > MOST_OF_A_NODE * reached.len() {
            return Err(io::Error::other(
                "there are more targets than the data nodes may serve",
            ));
        }
        let names: Vec<String> = reached.iter().map(|node| node.name.clone()).collect();
        while reached.len() < stripes {
            let name = names[reached.len() % names.len()].clone();
            let (connection, load) = reach(&name, &access.material).await?;
            reached.push(ReachedNode {
                name,
                connection,
                load,
            });
        }
        reached.truncate(stripes);
        Ok(Self::of(reached, &access.directory))
    }

    /// Has every node that can be reached listen; returns their addresses, too.
    ///
    /// # Errors
    /// None can be reached, or one of them cannot listen.
    pub(crate) async fn listening(
        access: &NodeAccess,
        options: &ListenOptions,
    ) -> io::Result<(Self, StripeAddresses)> {
        let reached = reach_all(access).await?;
        let mut stripes = Self::of(reached, &access.directory);
        let addresses = stripes.listen(options).await;
        let addresses =
            addresses.map_err(|failure| io::Error::other(failure.into_file_error().text))?;
        Ok((stripes, addresses))
    }

    fn of(reached: Vec<ReachedNode>, directory: &Arc<NodeDirectory>) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let node = |(number, reached): (usize, ReachedNode)| {
            let ReachedNode {
                name, connection, ..
            } = reached;
            let (messages, outgoing) = mpsc::channel(QUEUE);
            tokio::spawn(converse(
                number,
                name.clone(),
                connection,
                outgoing,
                sender.clone(),
            ));
            StripeNode { name, messages }
        };
        Self {
            nodes: reached.into_iter().enumerate().map(node).collect(),
            events,
            directory: Arc::clone(directory),
        }
    }

    /// The nodes.
    pub(crate) fn nodes(&self) -> &[StripeNode] {
        &self.nodes
    }

    /// Sends a message to a node, without waiting; `false`: the node is lost, or does not take its messages.
    pub(crate) fn send(&self, node: usize, message: FrontMessage) -> bool {
        let node = self.nodes.get(node);
        node.is_some_and(|node| node.messages.try_send(message).is_ok())
    }

    /// Whether nothing has happened since the last transfer: no node is lost.
    pub(crate) fn is_intact(&self) -> bool {
        self.events.is_empty() && self.nodes.iter().all(|node| !node.messages.is_closed())
    }

    /// Whether all its nodes are among these.
    pub(crate) fn is_within(&self, access: &NodeAccess) -> bool {
        self.nodes
            .iter()
            .all(|node| access.nodes.contains(&node.name))
    }

    /// The next message with the number of its node; `None`: the node is lost. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> (usize, Option<NodeMessage>) {
        match self.events.recv().await {
            Some((node, None)) => {
                self.note_failure(node);
                (node, None)
            }
            Some(event) => event,
            // Every task reports its end before.
            None => std::future::pending().await,
        }
    }

    /// Notes that a node has failed: the next transfers go on without it for a while.
    pub(crate) fn note_failure(&self, node: usize) {
        if let Some(node) = self.nodes.get(node) {
            tracing::warn!(node = node.name, "a data node is lost");
            self.directory.note_failure(&node.name, Instant::now());
        }
    }

    /// Notes how loaded a node says it is.
    pub(crate) fn note_load(&self, node: usize, load: NodeLoad) {
        if let Some(node) = self.nodes.get(node) {
            self.directory.note_load(&node.name, load);
        }
    }

    /// Notes that all nodes have carried out their parts.
    pub(crate) fn note_success(&self) {
        for node in &self.nodes {
            self.directory.note_success(&node.name);
        }
    }

    /// Has every node listen; returns their addresses, in the order of the stripes.
    ///
    /// # Errors
    /// A node cannot listen, or is lost.
    async fn listen(&mut self, options: &ListenOptions) -> Result<StripeAddresses, NodeFailure> {
        let listen = NodeListen {
            accept: options.accept.clone().into(),
            buffers: options.buffers.into(),
        };
        for node in 0..self.nodes.len() {
            self.send(node, FrontMessage::Listen(listen.clone()));
        }
        let mut addresses = vec![None; self.nodes.len()];
        while addresses.contains(&None) {
            let event = timeout(CONNECT_LIMIT, self.next_event()).await;
            let Ok((node, event)) = event else {
                let silent = addresses
                    .iter()
                    .position(Option::is_none)
                    .unwrap_or_default();
                self.note_failure(silent);
                let name = &self.nodes[silent].name;
                return Err(NodeFailure::other("it does not answer").at(name));
            };
            let name = &self.nodes[node].name;
            match event {
                Some(NodeMessage::Listening(Ok(address))) => addresses[node] = Some(address),
                Some(NodeMessage::Listening(Err(failure))) => return Err(failure.at(name)),
                None => return Err(NodeFailure::other("it is lost").at(name)),
                Some(_) => {}
            }
        }
        let addresses: Vec<_> = addresses.into_iter().flatten().collect();
        if addresses
            .iter()
            .any(|at| at.is_ipv4() != options.ip.is_ipv4())
        {
            let reason = "the data nodes are reached by another address family than the front end";
            return Err(NodeFailure::other(reason));
        }
        StripeAddresses::new(addresses)
            .ok_or_else(|| NodeFailure::other("there are too many data nodes"))
    }
}

/// Connects to all nodes at the same time; those that answer, in the order of the settings.
async fn reach_all(access: &NodeAccess) -> io::Result<Vec<ReachedNode>> {
    let mut attempts = JoinSet::new();
    let usable = access.directory.usable(&access.nodes, Instant::now());
    for (number, name) in usable.into_iter().enumerate() {
        let material = Arc::clone(&access.material);
        attempts.spawn(async move {
            let reached = reach(&name, &material).await;
            (number, name, reached)
        });
    }
    let mut reached = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok((number, name, Ok((connection, load)))) => {
                access.directory.note_load(&name, load);
                let node = ReachedNode {
                    name,
                    connection,
                    load,
                };
                reached.push((number, node));
            }
            Ok((_, name, Err(error))) => {
                tracing::warn!(node = name, %error, "a data node cannot be used");
                access.directory.note_failure(&name, Instant::now());
                access.directory.note_unreachable(&name);
            }
            Err(error) => tracing::warn!(%error, "a data node cannot be used"),
        }
    }
    if reached.is_empty() {
        return Err(io::Error::other("no data node can be used"));
    }
    reached.sort_by_key(|(number, ..)| *number);
    Ok(reached.into_iter().map(|(_, node)| node).collect())
}

/// Connects to a node, and waits until it serves and says how loaded it is.
pub(super) async fn reach(
    name: &str,
    material: &SecurityMaterial,
) -> io::Result<(NodeConnection, NodeLoad)> {
    timeout(CONNECT_LIMIT, connect(name, material)).await?
}

async fn connect(
    name: &str,
    material: &SecurityMaterial,
) -> io::Result<(NodeConnection, NodeLoad)> {
    let (host, _) = name.rsplit_once(':').unwrap_or((name, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for address in tokio::net::lookup_host(name).await? {
        match ControlTransport::connect(address).await {
            Ok(mut transport) => {
                let config = material
                    .node_client_config(host)
                    .map_err(io::Error::other)?;
                transport
                    .start_tls(&config, None)
                    .map_err(io::Error::other)?;
                transport.complete_handshake().await?;
                let mut connection = NodeConnection::new(transport);
                return match connection.receive().await? {
                    NodeMessage::Hello {
                        version: VERSION,
                        load,
                    } => Ok((connection, load)),
                    _ => Err(io::Error::other("it is not of this version of longhaul")),
                };
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Serves the connection to one node until either end closes it.
async fn converse(
    number: usize,
    name: String,
    mut connection: NodeConnection,
    mut outgoing: mpsc::Receiver<FrontMessage>,
    events: mpsc::Sender<(usize, Option<NodeMessage>)>,
) {
    loop {
        let went_well = tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => connection.send(&message).await,
                // The session does not need the node any more.
                None => return,
            },
            received = connection.receive() => match received {
                Ok(message) => match events.send((number, Some(message))).await {
                    Ok(()) => Ok(()),
                    Err(_) => return,
                },
                Err(error) => Err(error),
            },
        };
        if let Err(error) = went_well {
            tracing::debug!(node = name, %error, "the connection to a data node has ended");
            let _ = events.send((number, None)).await;
            return;
        }
    }
}
