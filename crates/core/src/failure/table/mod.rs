//! The wordings: what nodes, providers and proxies were seen to answer.
//!
//! A new wording is a new row, with the reply and where it was seen; a row is never widened. Numbers and
//! addresses in an example are filled in where the source gives a template. Every row must be the first
//! that matches its own example.

mod data;
mod execution;
mod generic;
mod service;
mod transactions;

use super::{
    FaultKind, RefusalKind,
    row::{Class, Entry, Shape, row, tx},
};

/// Rows that are sure of what they say. All of them are tried on the message, then on the texts inside
/// `data`.
pub(super) static SPECIFIC: &[&[Entry]] =
    &[execution::ROWS, transactions::ROWS, data::RANGES, data::HISTORY, data::FRONTIER, service::ROWS];

/// Rows for what is left: words that many messages contain, then codes, then the HTTP status.
pub(super) static GENERIC: &[&[Entry]] = &[generic::WORDS, generic::CODES, generic::STATUS];

/// Methods that put a transaction into a pool.
const SEND: &[&str] =
    &["eth_sendRawTransaction*", "eth_sendTransaction", "eth_sendPrivateTransaction", "eth_sendBundle"];

/// Methods that run the EVM without changing anything.
const SIMULATE: &[&str] =
    &["eth_call*", "eth_estimateGas", "eth_createAccessList", "eth_simulate*", "debug_trace*", "trace_*"];

/// Methods that only archive or debug nodes serve.
const TRACE: &[&str] = &["debug_*", "trace_*"];

/// Methods that return logs over a range.
const LOGS: &[&str] =
    &["eth_getLogs", "eth_getFilterLogs", "eth_getFilterChanges", "eth_newFilter", "trace_filter"];

// Measured by us.
const ANVIL: &str = "measured: anvil 1.7.1";
const HARDHAT: &str = "measured: hardhat 3.18.0";
const GANACHE: &str = "measured: ganache 7.9.2";

// Read in the error tables of systems that send transactions or route calls.
const CHAINLINK: &str = "chainlink-evm";
const OPENZEPPELIN: &str = "OpenZeppelin relayer";
const OPTIMISM: &str = "Optimism txmgr";
const HYPERLANE: &str = "Hyperlane";
const RUNDLER: &str = "rundler";
const THIRDWEB: &str = "thirdweb engine";
const ERPC: &str = "eRPC";
const PROXYD: &str = "proxyd";
const DSHACKLE: &str = "dshackle";
const LASSO: &str = "lasso";
const VIEM: &str = "viem";
const ETHERS: &str = "ethers";
const ALLOY: &str = "alloy";
const WEB3_PROXY: &str = "web3-proxy";
const GETH: &str = "go-ethereum";
const ERIGON: &str = "erigon";
const RETH: &str = "reth";

// Public reports.
const INFURA_237: &str = "INFURA/infura issue 237";
const FOUNDRY_12687: &str = "foundry issue 12687";
const LIDO_395: &str = "lidofinance/depositor-bot pull 395";
