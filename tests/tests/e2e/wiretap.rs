//! An endpoint that keeps what HTTP requests look like, and fails in ways that could give secrets away.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use url::Url;

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes it to the chain.
    Pass,
    /// Answers with HTTP 500 and the whole request, as some proxies do.
    Echo,
    /// Answers with a redirection to its own address, key and all.
    Redirect,
    /// Closes the connection.
    Close,
    /// Never answers.
    Hang,
}

/// The endpoint. Its listener ends when it is dropped.
pub(crate) struct Wiretap {
    state: Arc<State>,
    port: u16,
    accepting: JoinHandle<()>,
}

struct State {
    /// Host and port of the node behind it.
    chain: Mutex<String>,
    mode: Mutex<Mode>,
    /// The heads of all requests, lines and all.
    heads: Mutex<Vec<String>>,
}

impl Wiretap {
    pub(crate) async fn start(chain: &Url) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
        let port = listener.local_addr().expect("it is bound").port();
        let chain = Mutex::new(address(chain));
        let state = Arc::new(State { chain, mode: Mutex::new(Mode::Pass), heads: Mutex::default() });
        let accepting = tokio::spawn({
            let state = state.clone();
            async move {
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let state = state.clone();
                    // A connection that ends early is what some modes are about.
                    connections.spawn(async move { drop(state.serve(stream).await) });
                }
            }
        });
        Self { state, port, accepting }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, mode: Mode) {
        *locked(&self.state.mode) = mode;
    }

    /// Leads to another node from here on.
    pub(crate) fn lead_to(&self, chain: &Url) {
        *locked(&self.state.chain) = address(chain);
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        locked(&self.state.heads).clone()
    }
}

impl Drop for Wiretap {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl State {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut bytes = Vec::new();
        let (head, body) = loop {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            if let Some(request) = whole(&bytes) {
                break request;
            }
        };
        locked(&self.heads).push(head.clone());
        let mode = *locked(&self.mode);
        match mode {
            Mode::Pass => {
                let chain = locked(&self.chain).clone();
                let mut chain = TcpStream::connect(chain).await?;
                chain.write_all(http("POST / HTTP/1.1", &body).as_bytes()).await?;
                tokio::io::copy(&mut chain, &mut stream).await?;
            }
            Mode::Echo => {
                let text = format!("cannot forward {head}{body}");
                stream.write_all(http("HTTP/1.1 500 Internal Server Error", &text).as_bytes()).await?;
            }
            Mode::Redirect => {
                let path = head.split(' ').nth(1).unwrap_or_default();
                let line = format!("HTTP/1.1 302 Found\r\nlocation: {path}");
                stream.write_all(http(&line, "").as_bytes()).await?;
            }
            Mode::Close => {}
            Mode::Hang => std::future::pending().await,
        }
        Ok(())
    }
}

fn address(chain: &Url) -> String {
    format!("127.0.0.1:{}", chain.port().expect("it has a port"))
}

/// A message of this first line and body, after which the connection ends.
fn http(line: &str, body: &str) -> String {
    format!(
        "{line}\r\nhost: chain\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Head and body of a request that has come in full.
fn whole(bytes: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() >= length).then(|| (head.to_owned(), body.to_owned()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
