//! A server that answers from memory, in a process of its own.

use std::{
    borrow::Cow,
    cell::Cell,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use url::Url;

use crate::measure;

/// The argument that makes a process a server.
pub(crate) const SERVE: &str = "serve";
/// The chain id that it serves.
pub(crate) const CHAIN_ID: u64 = 31_337;
/// Its head.
const HEAD: u64 = 0x1234;
/// Where reads are counted: a GET of anything answers with the number so far.
const METHOD: &str = "eth_getBalance";
/// Which of the measured reads is late, and by how much.
const EVERY: u64 = 20;
const LATE: Duration = Duration::from_millis(300);
/// What stands around the id and the result of a reply.
const PREFIX: &str = r#"{"jsonrpc":"2.0","id":"#;
const RESULT: &str = r#","result":"#;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nobody listens.
    Dead,
    /// It accepts and never answers.
    Hung,
    /// Every twentieth of the measured reads is answered late.
    SlowTail,
}

impl Fault {
    /// Its name on the command line of a server.
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dead => "dead",
            Self::Hung => "hung",
            Self::SlowTail => "slow-tail",
        }
    }

    fn named(name: &str) -> anyhow::Result<Self> {
        match [Self::None, Self::Dead, Self::Hung, Self::SlowTail]
            .into_iter()
            .find(|fault| fault.name() == name)
        {
            Some(fault) => Ok(fault),
            None => bail!("there is no fault `{name}`"),
        }
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    process: Option<Child>,
    port: u16,
}

impl Server {
    pub(crate) fn start(fault: Fault) -> anyhow::Result<Self> {
        if fault == Fault::Dead {
            let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            return Ok(Self { process: None, port });
        }
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE, fault.name()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().context("it is piped")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().context("the server names its port")?;
        Ok(Self { process: Some(process), port })
    }

    pub(crate) fn url(&self) -> Url {
        format!("http://127.0.0.1:{}/", self.port).parse().expect("a port makes a URL")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// How many of the measured reads it has answered.
    pub(crate) fn reads(&self) -> u64 {
        let ask = || -> std::io::Result<u64> {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port))?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply.rsplit("\r\n").next().and_then(|body| body.trim().parse().ok()).unwrap_or(0))
        };
        if self.process.is_some() { ask().unwrap_or(0) } else { 0 }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It is gone already if either fails.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Serves until it is killed: one thread for all connections, so that it is not what is measured.
pub(crate) fn serve(fault: &str) -> anyhow::Result<()> {
    measure::pin_to(0);
    let fault = Fault::named(fault)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        let reads = Rc::new(Cell::new(0));
        loop {
            let (stream, _) = listener.accept().await?;
            // The client has left when it fails.
            tokio::task::spawn_local(converse(stream, fault, reads.clone()));
        }
    })
}

async fn converse(mut stream: TcpStream, fault: Fault, reads: Rc<Cell<u64>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(4096);
    let mut reply = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if request.starts_with(b"GET") {
            let count = reads.get().to_string();
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{count}", count.len());
            return stream.write_all(text.as_bytes()).await;
        }
        if fault == Fault::Hung {
            return std::future::pending().await;
        }
        let Some(body) = whole(&request) else { continue };
        let late = answer(body, fault, &reads, &mut reply);
        if late {
            tokio::time::sleep(LATE).await;
        }
        stream.write_all(&reply).await?;
        request.clear();
    }
}

/// The body, once all of it is there.
fn whole(request: &[u8]) -> Option<&[u8]> {
    let head = find(request, b"\r\n\r\n")? + 4;
    let body = &request[head..];
    // A JSON object ends with its last brace, and nothing else that is asked here is as long as a segment.
    (body.first() == Some(&b'{') && body.last() == Some(&b'}')).then_some(body)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, part)
}

/// Writes the reply; whether it is to be late.
fn answer(body: &[u8], fault: Fault, reads: &Cell<u64>, reply: &mut Vec<u8>) -> bool {
    let id = find(body, b"\"id\":").map_or(&b"null"[..], |at| {
        let rest = &body[at + 5..];
        &rest[..rest.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap_or(rest.len())]
    });
    reply.clear();
    let measured = find(body, METHOD.as_bytes()).is_some();
    let result = match measured {
        true => Cow::Borrowed("\"0x1\""),
        false => Cow::Owned(rarely(&String::from_utf8_lossy(body))),
    };
    let length = PREFIX.len() + id.len() + RESULT.len() + result.len() + 1;
    // Writing to memory does not fail.
    let _ = write!(
        reply,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    for part in [PREFIX.as_bytes(), id, RESULT.as_bytes(), result.as_bytes(), b"}"] {
        reply.extend_from_slice(part);
    }
    if !measured {
        return false;
    }
    reads.set(reads.get() + 1);
    fault == Fault::SlowTail && reads.get().is_multiple_of(EVERY)
}

fn rarely(request: &str) -> String {
    if request.contains("eth_chainId") {
        format!("\"{CHAIN_ID:#x}\"")
    } else if request.contains("eth_getBlockByNumber") {
        block(request)
    } else {
        format!("\"{HEAD:#x}\"")
    }
}

/// The parts of a block that identity and heads are read from; an hour of one-second blocks.
fn block(request: &str) -> String {
    let digits = request.split("[\"0x").nth(1).and_then(|rest| rest.split('"').next());
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(HEAD);
    let hash = |number: u64| format!("0x{:064x}", number + 1);
    format!(
        r#"{{"number":"{number:#x}","hash":"{}","parentHash":"{}","timestamp":"{:#x}","transactions":[]}}"#,
        hash(number),
        hash(number.saturating_sub(1)),
        1_700_000_000 + number
    )
}
