//! What the incidents have in common.

use std::{collections::BTreeSet, time::Duration};

use backstay::{
    Client, Config,
    alloy::{
        consensus::{SignableTransaction, Transaction, TxEip1559, TxEnvelope},
        eips::{Decodable2718, Encodable2718},
        network::TxSignerSync,
        primitives::{Address, B256, Bytes, TxKind, U256},
        signers::local::PrivateKeySigner,
    },
};
use backstay_testkit::{Fleet, Mark, Program, Scenario};
use e2e::story::CHAIN_ID;

use crate::{
    paper::Paper,
    stage::{config, sends, status, within},
};

/// A contract that is called where it does not matter which.
pub(crate) const TARGET: Address = Address::repeat_byte(0x22);

/// Endpoints without a chain behind them, in this order.
pub(crate) async fn scripted<const N: usize>(endpoints: [(&str, Program); N]) -> Fleet {
    let mut fleet = Fleet::builder();
    for (name, program) in endpoints {
        fleet = fleet.scripted(name, program);
    }
    fleet.start().await.expect("the fleet starts")
}

/// The rules of an incident, from its file.
pub(crate) fn script(incident: &str) -> Scenario {
    let file = format!("{}/tests/incidents/scripts/{incident}.toml", env!("CARGO_MANIFEST_DIR"));
    Scenario::read(file).unwrap_or_else(|error| panic!("{error}"))
}

/// The endpoints of an incident, as its file has them, in front of one made-up node.
pub(crate) async fn scripted_by(incident: &Scenario, node: &Paper) -> Fleet {
    let mut fleet = Fleet::builder();
    for name in incident.endpoints() {
        fleet = fleet.scripted(name, node.behind(incident.program(name)));
    }
    fleet.start().await.expect("the fleet starts")
}

/// A client that reads, over a fleet.
pub(crate) async fn reader(fleet: &Fleet) -> Client {
    reader_with(fleet, |_| ()).await
}

/// A client that reads, over a fleet, with another configuration than usual.
pub(crate) async fn reader_with(fleet: &Fleet, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = config(&fleet.urls());
    config.provider.lookup_budget = Duration::from_millis(300);
    config.provider.pool.min_hold = Duration::from_millis(50);
    change(&mut config);
    within(Client::builder(config).connect()).await.expect("it connects")
}

/// How often an endpoint was asked for a method since a mark.
pub(crate) fn asked(fleet: &Fleet, since: Mark, endpoint: &str, method: &str) -> usize {
    let calls = fleet.records_since(since).into_iter();
    calls.filter(|call| call.endpoint == endpoint && call.method == method).count()
}

/// Fails unless an endpoint is in use and nothing was held against it.
pub(crate) fn unblamed(client: &Client, endpoint: &str) {
    let status = status(client, endpoint);
    assert_eq!((status.excluded, status.faults), (None, 0), "{endpoint}");
}

/// A signed transfer of nothing, for an account that no client manages.
pub(crate) fn signed(signer: &PrivateKeySigner, nonce: u64) -> Bytes {
    let mut transfer = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 20_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        to: TxKind::Call(TARGET),
        value: U256::ZERO,
        ..TxEip1559::default()
    };
    let signature = signer.sign_transaction_sync(&mut transfer).expect("it signs");
    TxEnvelope::from(transfer.into_signed(signature)).encoded_2718().into()
}

/// The transactions that were sent anywhere, each once. Fails where one is not for the chain.
pub(crate) fn distinct(fleet: &Fleet) -> BTreeSet<B256> {
    let raw = sends(fleet).into_iter().filter_map(|call| call.raw_tx);
    raw.map(|raw| {
        let sent = TxEnvelope::decode_2718(&mut raw.as_ref()).expect("it is a transaction");
        assert_eq!(sent.chain_id(), Some(CHAIN_ID));
        *sent.tx_hash()
    })
    .collect()
}
