//! A client that tells apart the ways in which a connection ends, and a chain to talk to.

use std::{io, time::Duration};

use backstay_testkit::{Anvil, Fleet, Program};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use url::Url;

/// No test waits longer for something that must come.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// What a client sees of one exchange on a connection of its own.
#[derive(Debug, PartialEq)]
pub(crate) enum Got {
    Answer {
        status: u16,
        head: String,
        body: String,
    },
    Refused,
    Reset,
    /// Closed in an orderly way without a byte.
    Closed,
    /// Closed before the announced length.
    Cut {
        announced: usize,
        came: usize,
    },
}

pub(crate) async fn post(url: &Url, body: &str) -> Got {
    match exchange(url, body).await {
        Ok(bytes) if bytes.is_empty() => Got::Closed,
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer has a head");
            let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
            let head = head.to_ascii_lowercase();
            let announced = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.trim().parse().expect("a length is a number"));
            if body.len() < announced {
                return Got::Cut { announced, came: body.len() };
            }
            Got::Answer { status, body: body.to_owned(), head }
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Got::Refused,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Got::Reset,
        Err(error) => panic!("an exchange does not end by {error}"),
    }
}

async fn exchange(url: &Url, body: &str) -> io::Result<Vec<u8>> {
    let address = url.socket_addrs(|| None)?[0];
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

pub(crate) fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

pub(crate) async fn ask(url: &Url, method: &str, params: Value) -> Got {
    post(url, &request(method, &params)).await
}

/// The whole envelope of a JSON-RPC reply, and of nothing else.
pub(crate) async fn envelope(url: &Url, method: &str, params: Value) -> Value {
    match ask(url, method, params).await {
        Got::Answer { status: 200, body, .. } => serde_json::from_str(&body).expect("JSON-RPC is JSON"),
        other => panic!("{method} got {other:?}"),
    }
}

pub(crate) async fn result(url: &Url, method: &str, params: Value) -> Value {
    let envelope = envelope(url, method, params).await;
    assert_eq!(envelope["id"], 7, "{envelope}");
    envelope.get("result").unwrap_or_else(|| panic!("{method} got {envelope}")).clone()
}

pub(crate) async fn error(url: &Url, method: &str, params: Value) -> (i64, String) {
    let envelope = envelope(url, method, params).await;
    let error = envelope.get("error").unwrap_or_else(|| panic!("{method} got {envelope}"));
    (error["code"].as_i64().expect("a code"), error["message"].as_str().expect("a message").to_owned())
}

pub(crate) async fn chain() -> Anvil {
    Anvil::builder().timestamp(1_700_000_000).launch().await.expect("anvil starts")
}

/// One endpoint, `a`, in front of the chain.
pub(crate) async fn fleet(chain: &Anvil, program: impl Into<Program>) -> Fleet {
    Fleet::builder().endpoint("a", chain.url(), program).start().await.expect("the fleet starts")
}

/// Has one wei mined from the first account to `0x11..11`, past the fleet; the hash.
pub(crate) async fn pay(chain: &Anvil) -> Value {
    let head = chain.head().await.expect("anvil answers");
    let payment = json!([{ "from": chain.accounts()[0], "to": payee(), "value": "0x1" }]);
    let hash = chain.rpc("eth_sendTransaction", payment).await.expect("anvil takes a payment");
    mined(chain, head + 1).await;
    hash
}

pub(crate) fn payee() -> String {
    format!("0x{}", "11".repeat(20))
}

/// Waits until the chain has this head: a transaction is mined a moment after anvil has taken it.
pub(crate) async fn mined(chain: &Anvil, head: u64) {
    let reached = async {
        while chain.head().await.expect("anvil answers") < head {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, reached).await.expect("anvil mines");
}
