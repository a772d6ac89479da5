//! Reverts in the dialects of clients: the bytes are found wherever they are put, and a revert is final.

use backstay::{
    Client, Error, ErrorKind, Revert,
    alloy::{
        primitives::{Address, Bytes, U256},
        sol_types::{Revert as Reason, SolError},
    },
};
use backstay_testkit::{Action, Fleet, Program, RpcError, Rule};
use serde_json::json;

use crate::{
    setup::unblamed,
    stage::{Stage, within},
};

backstay::alloy::sol! {
    #[derive(Debug, PartialEq, Eq)]
    error Unauthorized();
    #[derive(Debug, PartialEq, Eq)]
    error TooLowAllowance(address token, uint256 allowance, uint256 expected);
}

/// Two endpoints over a chain, and a client without recovery flows, which are not to see these reverts.
struct Scene {
    stage: Stage,
    fleet: Fleet,
    client: Client,
}

impl Scene {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let fleet = stage.fleet([("A", Program::new()), ("B", Program::new())]).await;
        let signer = stage.account().await;
        let builder = Client::builder(stage.config(&fleet)).signer(signer);
        let client = within(builder.connect()).await.expect("it connects");
        Self { stage, fleet, client }
    }

    /// Makes an endpoint answer calls of the registry, and estimates of them, with an error.
    fn answers(&self, endpoint: &str, error: RpcError) {
        let simulated = Rule::on_any_of(["eth_call", "eth_estimateGas"]).to(self.stage.contracts.graphs);
        self.fleet.endpoint(endpoint).set(simulated.then(Action::RpcError(error)));
    }

    /// How an intent to register ends.
    async fn refused(&self, name: &str) -> Error {
        let intent = self.stage.register(&self.client, name).send().await.expect("it is written down");
        within(intent.outcome()).await.expect_err("it reverts")
    }

    /// The revert of an intent to register, which was believed without another endpoint, and without a fault.
    async fn reverted(&self, name: &str) -> Revert {
        let since = self.fleet.mark();
        let error = self.refused(name).await;
        let calls = self.fleet.records_since(since).into_iter();
        let simulated = calls.filter(|call| ["eth_call", "eth_estimateGas"].contains(&call.method.as_str()));
        let at: Vec<_> = simulated.map(|call| (call.endpoint, call.method)).collect();
        let once = |method: &str| ("A".to_owned(), method.to_owned());
        assert_eq!(at, [once("eth_estimateGas"), once("eth_call")], "{name}: {error}");
        unblamed(&self.client, "A");
        revert_of(&error)
    }
}

fn revert_of(error: &Error) -> Revert {
    assert!(matches!(error.kind(), ErrorKind::Reverted(_)), "{error:?}");
    error.revert().expect("it is a revert").clone()
}

fn parity(data: impl Into<String>) -> RpcError {
    RpcError::new(-32_015, "VM execution error.").with_data(json!(data.into()))
}

fn too_low() -> TooLowAllowance {
    TooLowAllowance { token: Address::repeat_byte(0x11), allowance: U256::ZERO, expected: U256::ONE }
}

#[tokio::test]
async fn b78_revert_bytes_are_found_behind_a_word_in_the_data() {
    let scene = Scene::new().await;
    let data = Bytes::from(Reason::from("Solutions closed").abi_encode());
    scene.answers("A", parity(format!("Reverted {data}")));
    let revert = scene.reverted("reason").await;
    assert_eq!((revert.reason().as_deref(), &revert.data), (Some("Solutions closed"), &data));

    let data = Bytes::from(too_low().abi_encode());
    scene.answers("A", parity(format!("Reverted {data}")));
    let revert = scene.reverted("custom").await;
    assert_eq!(revert.data, data);
    assert_eq!(revert.decode::<TooLowAllowance>(), Some(too_low()));
}

#[tokio::test]
async fn b79_a_selector_that_is_only_in_the_message_is_found() {
    let scene = Scene::new().await;
    scene.answers("A", RpcError::new(-32_015, "Reverted 0x82b42900"));
    let revert = scene.reverted("a").await;
    assert_eq!(revert.data.as_ref(), Unauthorized::SELECTOR);
    assert_eq!(revert.decode::<Unauthorized>(), Some(Unauthorized {}));
}

#[tokio::test]
async fn b80_a_revert_without_bytes_is_a_revert_with_the_words_that_there_are() {
    let scene = Scene::new().await;
    scene.answers("A", parity("Reverted 0x"));
    let revert = scene.reverted("empty").await;
    assert!(revert.data.is_empty());
    assert_eq!((revert.reason(), revert.describe().as_str()), (None, "no reason given"));

    scene.answers("A", parity("Reverted ERC721: invalid token"));
    let revert = scene.reverted("text").await;
    assert!(revert.data.is_empty());
    assert_eq!(revert.reason().as_deref(), Some("ERC721: invalid token"));
}

#[tokio::test]
async fn b81_a_custom_error_under_another_code_is_told_by_its_selector() {
    let scene = Scene::new().await;
    let data = Bytes::from(too_low().abi_encode());
    scene.answers("A", RpcError::new(-32_000, "execution reverted: revert").with_data(json!(data)));
    let revert = scene.reverted("a").await;
    assert_eq!(revert.decode::<TooLowAllowance>(), Some(too_low()));
    assert_eq!(revert.reason(), None, "`revert` is the node's word");
    assert_eq!(revert.data, data);
}

#[tokio::test]
async fn b84_reverts_of_nodes_that_send_no_bytes_are_told_by_their_words() {
    let scene = Scene::new().await;
    let named = "VM Exception while processing transaction: reverted with custom error \
                 'TooLowAllowance(\"0x1111111111111111111111111111111111111111\", 0, 1)'";
    scene.answers("A", RpcError::new(-32_603, named).with_data(json!({"message": named})));
    let revert = scene.reverted("named").await;
    assert!(revert.describe().starts_with("TooLowAllowance("), "{}", revert.describe());

    let with_bytes = "VM Exception while processing transaction: reverted with an unrecognized custom error \
                      (return data: 0x82b42900)";
    scene.answers("A", RpcError::new(-32_603, with_bytes));
    assert_eq!(scene.reverted("bytes").await.data.as_ref(), Unauthorized::SELECTOR);

    scene.answers("A", RpcError::new(-32_600, "execution was reverted"));
    assert!(scene.reverted("bare").await.data.is_empty());

    // This may be anything: another endpoint says what it was.
    let data = Bytes::from(too_low().abi_encode());
    scene.answers(
        "A",
        RpcError::new(-32_603, "Internal error").with_data(json!({"message": "Internal error"})),
    );
    scene.answers("B", RpcError::new(3, "execution reverted").with_data(json!(data)));
    let revert = revert_of(&scene.refused("internal").await);
    assert_eq!(revert.decode::<TooLowAllowance>(), Some(too_low()));
    assert!(scene.fleet.count("B", "eth_call") >= 1);
}
