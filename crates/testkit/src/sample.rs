//! The contracts of the approve-then-register story, for tests and examples.
//!
//! `ContextGraphs.createContextGraph` takes a deposit, read from `Parameters`, in a `Token`; without an
//! allowance it reverts with `TooLowAllowance`. Their sources are in `contracts/`.

use std::time::Duration;

use alloy::{
    primitives::{Address, B256, Bytes, U256, keccak256},
    providers::MULTICALL3_ADDRESS,
    sol_types::{SolCall, SolConstructor, SolEvent},
};
use serde_json::{Value, json};

use crate::{Anvil, Error};

mod bindings {
    alloy::sol!(Multicall, "../../contracts/artifacts/Multicall.json");
    alloy::sol!(
        #[sol(rpc)]
        Token,
        "../../contracts/artifacts/Token.json"
    );
    alloy::sol!(
        #[sol(rpc)]
        Parameters,
        "../../contracts/artifacts/Parameters.json"
    );
    alloy::sol!(
        #[sol(rpc)]
        ContextGraphs,
        "../../contracts/artifacts/ContextGraphs.json"
    );
}

pub use bindings::{ContextGraphs, Parameters, Token};

/// Puts a multicall where alloy's `provider.multicall()` looks for it, for the reads that Multicall3 has:
/// `aggregate`, `aggregate3`, `tryAggregate`, `getBlockNumber` and `getEthBalance`. Mines what that takes.
///
/// # Errors
///
/// When the chain refuses or cannot be reached.
pub async fn deploy_multicall(chain: &Anvil) -> Result<Address, Error> {
    let made = create(chain, chain.accounts()[0], &bindings::Multicall::BYTECODE, &[]).await?;
    let code = chain.rpc("eth_getCode", json!([made, "latest"])).await?;
    chain.rpc("anvil_setCode", json!([MULTICALL3_ADDRESS, code])).await?;
    // What is set is part of the state from the next block on.
    chain.mine(1).await?;
    Ok(MULTICALL3_ADDRESS)
}

/// How many accounts are given tokens before it is waited for blocks: a quarter of a block's gas at most.
const FUNDED_AT_ONCE: usize = 100;

/// The contracts, deployed on a chain.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    /// The token that deposits are paid in.
    pub token: Address,
    /// Where the deposit is set.
    pub parameters: Address,
    /// The registry.
    pub graphs: Address,
    /// The deposit, in the token's smallest unit.
    pub deposit: U256,
    owner: Address,
}

impl Deployment {
    /// Deploys the contracts with this deposit, from the chain's first account, and mines what that takes.
    ///
    /// # Errors
    ///
    /// When the chain refuses or cannot be reached.
    pub async fn deploy(chain: &Anvil, deposit: U256) -> Result<Self, Error> {
        let owner = chain.accounts()[0];
        let name = Token::constructorCall { name_: "Deposit".into(), symbol_: "DEP".into() };
        let token = create(chain, owner, &Token::BYTECODE, &name.abi_encode()).await?;
        let parameters = create(chain, owner, &Parameters::BYTECODE, &[]).await?;
        let arguments = ContextGraphs::constructorCall { token_: token, parameters_: parameters };
        let graphs = create(chain, owner, &ContextGraphs::BYTECODE, &arguments.abi_encode()).await?;
        let mut deployed = Self { token, parameters, graphs, deposit, owner };
        deployed.set_deposit(chain, deposit).await?;
        Ok(deployed)
    }

    /// Changes the deposit, and mines what that takes.
    ///
    /// # Errors
    ///
    /// When the chain refuses or cannot be reached.
    pub async fn set_deposit(&mut self, chain: &Anvil, deposit: U256) -> Result<(), Error> {
        let input = Bytes::from(Parameters::setDepositCall { current: deposit }.abi_encode());
        send(chain, json!({"from": self.owner, "to": self.parameters, "input": input})).await?;
        self.deposit = deposit;
        Ok(())
    }

    /// Contracts that were deployed before, by this owner.
    pub const fn at(
        token: Address,
        parameters: Address,
        graphs: Address,
        deposit: U256,
        owner: Address,
    ) -> Self {
        Self { token, parameters, graphs, deposit, owner }
    }

    /// Gives an account 100 ETH, and tokens for a hundred deposits.
    ///
    /// # Errors
    ///
    /// When the chain refuses or cannot be reached.
    pub async fn fund(&self, chain: &Anvil, account: Address) -> Result<(), Error> {
        send(chain, self.funding(chain, account).await?).await.map(drop)
    }

    /// Does the same for many accounts, and waits for the blocks of a chain that mines by itself.
    ///
    /// # Errors
    ///
    /// When the chain refuses or cannot be reached.
    pub async fn fund_all(&self, chain: &Anvil, accounts: &[Address]) -> Result<(), Error> {
        // Blocks that are more than half full raise the base fee, and the pool lets go of what does not pay it.
        for some in accounts.chunks(FUNDED_AT_ONCE) {
            let mut hashes = Vec::with_capacity(some.len());
            for account in some {
                let funding = self.funding(chain, *account).await?;
                hashes.push(chain.rpc("eth_sendTransaction", json!([funding])).await?);
            }
            for hash in hashes {
                while receipt(chain, &hash).await?.is_null() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        Ok(())
    }

    /// Gives an account its ether, and returns the transaction that gives it its tokens.
    async fn funding(&self, chain: &Anvil, account: Address) -> Result<Value, Error> {
        let ether = U256::from(100) * U256::from(10).pow(U256::from(18));
        chain.rpc("anvil_setBalance", json!([account, ether])).await?;
        let mint = Token::mintCall { to: account, amount: self.deposit * U256::from(100) };
        Ok(json!({"from": self.owner, "to": self.token, "input": Bytes::from(mint.abi_encode())}))
    }

    /// How many approves of an account the chain has included.
    ///
    /// # Errors
    ///
    /// When the chain cannot be reached.
    pub async fn approvals(&self, chain: &Anvil, account: Address) -> Result<u64, Error> {
        events(chain, self.token, json!([Token::Approval::SIGNATURE_HASH, account.into_word()])).await
    }

    /// How many registrations of an account the chain has included.
    ///
    /// # Errors
    ///
    /// When the chain cannot be reached.
    pub async fn registrations(&self, chain: &Anvil, account: Address) -> Result<u64, Error> {
        let created = ContextGraphs::ContextGraphCreated::SIGNATURE_HASH;
        events(chain, self.graphs, json!([created, Value::Null, account.into_word()])).await
    }

    /// A key for a context graph, from any text.
    pub fn key(text: &str) -> B256 {
        keccak256(text)
    }
}

async fn create(chain: &Anvil, from: Address, bytecode: &Bytes, arguments: &[u8]) -> Result<Address, Error> {
    let input = Bytes::from([bytecode.as_ref(), arguments].concat());
    let receipt = send(chain, json!({"from": from, "input": input})).await?;
    let address = receipt.get("contractAddress").and_then(Value::as_str);
    Ok(address.and_then(|address| address.parse().ok()).expect("the receipt of a creation has its address"))
}

/// Sends from an account that the node holds the key of, mines, and returns the receipt.
async fn send(chain: &Anvil, transaction: Value) -> Result<Value, Error> {
    let hash = chain.rpc("eth_sendTransaction", json!([transaction])).await?;
    loop {
        chain.mine(1).await?;
        let receipt = receipt(chain, &hash).await?;
        if !receipt.is_null() {
            return Ok(receipt);
        }
    }
}

async fn receipt(chain: &Anvil, hash: &Value) -> Result<Value, Error> {
    let receipt = chain.rpc("eth_getTransactionReceipt", json!([hash])).await?;
    assert!(
        receipt.is_null() || receipt["status"] == "0x1",
        "a transaction of the set-up reverted: {receipt}"
    );
    Ok(receipt)
}

async fn events(chain: &Anvil, contract: Address, topics: Value) -> Result<u64, Error> {
    let filter = json!([{"address": contract, "fromBlock": "0x0", "toBlock": "latest", "topics": topics}]);
    let logs = chain.rpc("eth_getLogs", filter).await?;
    Ok(logs.as_array().map_or(0, Vec::len) as u64)
}
