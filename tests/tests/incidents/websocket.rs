//! An endpoint over WebSocket that is preferred, and fails in its own ways.

use std::time::Duration;

use backstay::{
    Client, EndpointConfig,
    alloy::{network::Ethereum, providers::Provider},
};
use backstay_testkit::{Fleet, Message, SocketServer, Upgrade};

use crate::{
    paper::Paper,
    setup::{asked, scripted, unblamed},
    stage::{block_number, config, eventually, status, within},
};

/// A over WebSocket, which shows what B does while it is sound, and B over HTTP.
async fn pair(node: &Paper) -> (SocketServer, Fleet) {
    let fleet = scripted([("B", node.node())]).await;
    let socket = SocketServer::start(&fleet.url("B")).await.expect("it starts");
    (socket, fleet)
}

async fn reader(socket: &SocketServer, fleet: &Fleet) -> Client {
    let mut config = config(&fleet.urls());
    config.provider.attempt_timeout = Duration::from_secs(20);
    config.provider.operation_timeout = Duration::from_secs(60);
    config.provider.pool.min_hold = Duration::from_millis(50);
    config.endpoints.insert(0, EndpointConfig::new("A", socket.url()));
    within(Client::builder(config).connect()).await.expect("B is enough")
}

fn throttled() -> Upgrade {
    Upgrade::Refuse { status: 429, headers: Vec::new(), body: "rate limited".into() }
}

#[tokio::test]
async fn b15_a_websocket_that_is_throttled_or_closed_at_once_leads_to_the_http_endpoint_and_comes_back() {
    for fault in [throttled(), Upgrade::CloseWith(1013)] {
        let node = Paper::at(0x64);
        let (socket, fleet) = pair(&node).await;
        socket.upgrade(fault.clone());
        let begun = tokio::time::Instant::now();
        let client = reader(&socket, &fleet).await;
        let mark = fleet.mark();
        assert_eq!(within(block_number(&client)).await.expect("B answers"), 0x64, "{fault:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(asked(&fleet, mark, "B", "eth_blockNumber"), 1);
        assert_eq!(socket.count("eth_blockNumber"), 0);
        unblamed(&client, "B");

        let tries = socket.upgrades().len();
        eventually("it is tried again", async || socket.upgrades().len() > tries).await;
        socket.upgrade(Upgrade::Accept);
        eventually("A answers", async || {
            within(block_number(&client)).await.expect("one answers");
            socket.count("eth_blockNumber") > 0
        })
        .await;
        assert_eq!(status(&client, "A").excluded, None, "{fault:?}");
    }
}

#[tokio::test]
async fn b15_a_websocket_that_turns_while_it_serves_leads_to_the_http_endpoint() {
    let faults = [
        ("closed with 1013", Message::CloseWith(1013)),
        ("closed with 1008", Message::CloseWith(1008)),
        ("cut in the middle", Message::Cut),
        ("told in words", Message::Texts(vec!["Too Many Requests".into()])),
        (
            "told without an id",
            Message::Texts(vec![
                r#"{"jsonrpc":"2.0","error":{"code":-32005,"message":"rate limit exceeded"},"id":null}"#
                    .into(),
            ]),
        ),
    ];
    for (what, fault) in faults {
        let node = Paper::at(0x64);
        let (socket, fleet) = pair(&node).await;
        let client = reader(&socket, &fleet).await;
        let (mark, begun) = (fleet.mark(), tokio::time::Instant::now());
        socket.on_message(
            move |message| {
                if message["method"] == "eth_chainId" { fault.clone() } else { Message::Pass }
            },
        );
        // What is not the tracker's, which asks for the same by itself.
        let chain = within(client.provider::<Ethereum>().get_chain_id()).await;
        assert_eq!(chain.expect(what), 31_337);
        assert!(begun.elapsed() < Duration::from_secs(3), "{what}: {:?}", begun.elapsed());
        assert_eq!(socket.count("eth_chainId"), 2, "{what}: at connect, and once by this call");
        assert!(asked(&fleet, mark, "B", "eth_chainId") >= 1, "{what}");
    }
}
