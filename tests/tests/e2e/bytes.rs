//! Endpoints whose bytes are a burden: without end, deep, broken, or packed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backstay::{
    Client, EndpointConfig,
    alloy::{network::Ethereum, providers::Provider},
};
use backstay_testkit::{Action, Program, Rule};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::stage::{Stage, config, eventually, status, within};

/// A server in front of another that passes everything, but answers `eth_gasPrice` with a head and then bytes
/// without end. It counts those that it could write.
async fn endless(behind: std::net::SocketAddr, head: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let url = format!("http://{}/", listener.local_addr().expect("it has an address"));
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(pass(client, behind, head, Arc::clone(&count)));
        }
    });
    (url, written)
}

async fn pass(
    mut client: TcpStream,
    behind: std::net::SocketAddr,
    head: &'static str,
    written: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if String::from_utf8_lossy(bytes).contains("eth_gasPrice") {
                    client.write_all(head.as_bytes()).await?;
                    let chunk = [b"10000\r\n".as_slice(), &[b'7'; 0x10000], b"\r\n"].concat();
                    loop {
                        client.write_all(&chunk).await?;
                        written.fetch_add(chunk.len(), Ordering::SeqCst);
                    }
                }
                server.write_all(bytes).await?;
            }
            read = server.read(&mut answered) => {
                let bytes = &answered[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}

#[tokio::test]
async fn a_reply_without_end_is_cut_and_another_endpoint_answers() {
    let heads = [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9000000000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n",
    ];
    let stage = Stage::new().await;
    let fleet = stage.fleet([("sound", Program::new())]).await;
    let url = fleet.url("sound");
    let behind = url.socket_addrs(|| None).expect("it is an address")[0];
    for head in heads {
        let (url, written) = endless(behind, head).await;
        let mut config = config(&fleet.urls());
        config.provider.max_reply = 1 << 20;
        // It is not the time that ends it.
        config.provider.attempt_timeout = Duration::from_secs(25);
        config.provider.operation_timeout = Duration::from_secs(60);
        config.endpoints.insert(0, EndpointConfig::new("endless", url));
        let client = within(Client::builder(config).connect()).await.expect("it connects");
        within(client.provider::<Ethereum>().get_gas_price()).await.expect("the other one answers");
        assert!(status(&client, "endless").faults >= 1, "{head}");
        // What the limit allows, and what lies in the sockets on the way.
        let written = written.load(Ordering::SeqCst);
        assert!(written < 64 << 20, "{head}: {written} bytes");
    }
}

#[tokio::test]
async fn bytes_that_are_no_json_of_ours_are_a_fault_and_another_endpoint_answers() {
    let http = |headers: &[(&str, &str)], body: Vec<u8>| Action::Http {
        status: 200,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body,
    };
    let deep = |open: &str, close: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{}1{}}}",
            open.repeat(100_000),
            close.repeat(100_000)
        )
    };
    // `{"jsonrpc":"2.0","id":0,"result":"0x1"}` as gzip begins.
    let packed = vec![0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xab, 0x56];
    let bodies = [
        ("deep arrays", http(&[], deep("[", "]").into_bytes())),
        ("deep objects", http(&[], deep("{\"a\":", "}").into_bytes())),
        ("half of something deep", http(&[], "[".repeat(100_000).into_bytes())),
        ("no UTF-8", http(&[], b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"\xff\xfe\"}".to_vec())),
        ("zeros", http(&[], vec![0; 100_000])),
        ("packed", http(&[("content-encoding", "gzip")], packed)),
        ("an array of its fields", http(&[], b"[0,\"0x1\"]".to_vec())),
    ];
    let stage = Stage::new().await;
    let fleet = stage.fleet([("odd", Program::new()), ("sound", Program::new())]).await;
    for (what, body) in bodies {
        fleet.endpoint("odd").set(Program::new());
        let mut config = stage.config(&fleet);
        config.journal = None;
        let client = within(Client::builder(config).connect()).await.expect("it connects");
        fleet.endpoint("odd").set(Rule::on("eth_gasPrice").then(body));
        let mark = fleet.mark();
        let price = within(client.provider::<Ethereum>().get_gas_price()).await.expect(what);
        assert!(price > 1, "{what}: {price}");
        let asked = |name: &str| {
            let calls = fleet.records_since(mark).into_iter();
            calls.filter(|call| call.endpoint == name && call.method == "eth_gasPrice").count()
        };
        assert_eq!((asked("odd"), asked("sound")), (1, 1), "{what}");
        eventually("it goes on", async || within(client.provider::<Ethereum>().get_chain_id()).await.is_ok())
            .await;
    }
}

#[tokio::test]
async fn a_node_that_puts_its_url_into_an_error_gives_away_no_key() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("echoes", Program::new())]).await;
    let mut config = config(&fleet.urls());
    let endpoint = &mut config.endpoints[0];
    endpoint.url.push_str("v1/hush-path?apikey=hush-query");
    endpoint.headers.insert("authorization".into(), "Bearer hush-token".into());
    let echo = format!("odd request to {} with Bearer hush-token", endpoint.url);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    fleet.endpoint("echoes").set(Rule::on("eth_gasPrice").then(Action::error(-39_997, echo)));
    let error = within(client.provider::<Ethereum>().get_gas_price()).await.expect_err("it is refused");
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("odd request") && !shown.contains("hush"), "{shown}");
}
