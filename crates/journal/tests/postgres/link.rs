//! The wire between a journal and its server, to be cut at exact points.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use url::Url;

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// It passes, and so does its answer.
    Passes = 0,
    /// The connection is cut, and the server never sees it.
    CutBefore = 1,
    /// The server carries it out, and the connection is cut before the answer comes.
    CutAfter = 2,
    /// Nothing comes any more, and nothing is closed.
    Stalls = 3,
}

/// A relay in front of a server.
pub(crate) struct Link {
    address: Url,
    fate: Arc<AtomicU8>,
    struck: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Link {
    pub(crate) async fn to(server: &Url) -> Self {
        let target = ("127.0.0.1", server.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut address = server.clone();
        address.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let (fate, struck, connections) = <(Arc<AtomicU8>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let shared = (Arc::clone(&fate), Arc::clone(&struck), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            let (fate, struck, connections) = shared;
            let mut relays = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (fate, struck) = (Arc::clone(&fate), Arc::clone(&struck));
                relays.spawn(async move {
                    if let Ok(server) = TcpStream::connect(target).await {
                        relay(client, server, &fate, &struck).await;
                    }
                });
            }
        });
        Self { address, fate, struck, connections, task }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.address
    }

    /// What happens to commits from now on.
    pub(crate) fn set(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::SeqCst);
    }

    /// How many commits did not pass.
    pub(crate) fn struck(&self) -> usize {
        self.struck.load(Ordering::SeqCst)
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(client: TcpStream, server: TcpStream, fate: &AtomicU8, struck: &AtomicUsize) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // Set once the answers of the server are not to reach the client.
    let lost = AtomicBool::new(false);
    let up = async {
        let mut bytes = vec![0; 65_536];
        loop {
            let Ok(count @ 1..) = from_client.read(&mut bytes).await else { return };
            let chunk = &bytes[..count];
            // A simple query, which begins a message of its own.
            let commits = chunk.windows(7).any(|window| window == b"COMMIT\0");
            let now = fate.load(Ordering::SeqCst);
            if commits && now != Fate::Passes as u8 {
                struck.fetch_add(1, Ordering::SeqCst);
                if now == Fate::CutBefore as u8 {
                    return;
                }
                lost.store(true, Ordering::SeqCst);
                if now == Fate::Stalls as u8 {
                    std::future::pending::<()>().await;
                }
            }
            if to_server.write_all(chunk).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut bytes = vec![0; 65_536];
        loop {
            let Ok(count @ 1..) = from_server.read(&mut bytes).await else { return };
            if lost.load(Ordering::SeqCst) && fate.load(Ordering::SeqCst) == Fate::Stalls as u8 {
                std::future::pending::<()>().await;
            }
            if lost.load(Ordering::SeqCst) || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    // Whichever ends first takes both connections with it.
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
