//! A server that answers from memory, in a process of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Context;
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

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nobody listens.
    Dead,
    /// It accepts and never answers.
    Hung,
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    process: Option<Child>,
    port: u16,
}

impl Server {
    pub(crate) fn start(fault: Fault) -> anyhow::Result<Self> {
        if fault == Fault::Dead {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            return Ok(Self { process: None, port });
        }
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE, if fault == Fault::Hung { "hung" } else { "none" }])
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

    /// How many of the measured reads it has answered.
    pub(crate) fn reads(&self) -> u64 {
        let ask = || -> std::io::Result<u64> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
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

/// Serves until it is killed.
pub(crate) fn serve(fault: &str) -> anyhow::Result<()> {
    measure::pin_to(0);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let reads = Arc::new(AtomicU64::new(0));
    let hung = fault == "hung";
    for stream in listener.incoming() {
        let (stream, reads) = (stream?, reads.clone());
        thread::spawn(move || {
            if hung {
                thread::park();
            }
            // The client has left when this fails.
            let _ = converse(stream, &reads);
        });
    }
    Ok(())
}

fn converse(mut stream: TcpStream, reads: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    let mut chunk = [0; 4096];
    loop {
        let request = loop {
            if let Some((head, length)) = head_of(&buffer)
                && buffer.len() >= head + length
            {
                break buffer.drain(..head + length).collect::<Vec<u8>>();
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                read => buffer.extend_from_slice(&chunk[..read]),
            }
        };
        let text = String::from_utf8_lossy(&request);
        let body = match text.starts_with("GET") {
            true => reads.load(Ordering::Relaxed).to_string(),
            false => answer(&text, reads),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())?;
        if text.starts_with("GET") {
            return Ok(());
        }
    }
}

/// The length of the head and of the body, once the head is there.
fn head_of(buffer: &[u8]) -> Option<(usize, usize)> {
    let end = buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    Some((end, length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)))
}

fn answer(request: &str, reads: &AtomicU64) -> String {
    let id = request.split("\"id\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).unwrap_or("null");
    let result = if request.contains(METHOD) {
        reads.fetch_add(1, Ordering::Relaxed);
        "\"0x1\"".to_owned()
    } else if request.contains("eth_chainId") {
        format!("\"{CHAIN_ID:#x}\"")
    } else if request.contains("eth_getBlockByNumber") {
        block(request)
    } else {
        format!("\"{HEAD:#x}\"")
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
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
