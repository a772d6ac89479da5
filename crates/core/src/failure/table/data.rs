//! What an endpoint holds: log ranges, block tags, history, and blocks that it has not seen yet.

use super::*;
use Class::{Fault, Invalid, Missing, NotYet, OutOfRange, RangeTooLarge, Unsupported};

/// A row for a log query, with its example.
const fn logs(contains: &'static [&'static str]) -> Entry {
    row(RangeTooLarge, contains).to("eth_getLogs")
}

/// Too much asked for at once.
pub(super) static RANGES: &[Entry] = &[
    logs(&["try with this block range"])
        .says(
            "infura",
            -32005,
            "query returned more than 10000 results. Try with this block range [0x100E698, 0x100E6D4].",
        )
        .data(r#"{"from":"0x100E698","to":"0x100E6D4","limit":10000}"#)
        .seen_in(CHAINLINK),
    logs(&["this block range should work"])
        .says(
            "alchemy",
            -32602,
            "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block \
             range and no limit on the response size, or you can request any block range with a cap \
             of 10K logs in the response. Based on your parameters and the response size limit, \
             this block range should work: [0xc5dc00, 0xc614a7]",
        )
        .seen_in("alchemy, quoted by its users"),
    logs(&["retry with the range"])
        .says("hosted nodes", -32602, "query exceeds max results 20000, retry with the range 3600741-3620740")
        .seen_in(FOUNDRY_12687),
    logs(&["query returned more than"])
        .says("infura, bor", -32005, "query returned more than 10000 results")
        .seen_in(INFURA_237),
    logs(&["log response size exceeded"])
        .says("alchemy", -32602, "Log response size exceeded.")
        .seen_in(ERPC),
    logs(&["eth_getlogs is limited to"])
        .says("quicknode, 1rpc, blast", -32614, "eth_getLogs is limited to a 10,000 range")
        .seen_in(ERPC),
    logs(&["eth_getlogs range is too large"])
        .says("hosted nodes", -32603, "eth_getLogs range is too large, max is 1k blocks")
        .seen_in(FOUNDRY_12687),
    logs(&["block range is too wide"]).says("ankr", -32600, "block range is too wide").seen_in(ERPC),
    logs(&["block range too large"])
        .says(
            "tenderly",
            -32602,
            "invalid params: Block range too large for public access: maximum 1000 blocks.",
        )
        .seen_in("tenderly, captured by a user"),
    logs(&["larger than max block range"])
        .says(
            "hosted nodes",
            -32000,
            "block range is larger than max block range, block range = 5120, max block range = 5000",
        )
        .seen_in(LIDO_395),
    logs(&["too wide blocks range"])
        .says("simplyvc", -32000, "too wide blocks range, the limit is 100")
        .seen_in(CHAINLINK),
    logs(&["requested too many blocks from"])
        .says("drpc", -32000, "requested too many blocks from 0 to 16777216, maximum is set to 2048")
        .seen_in(ERPC),
    logs(&["exceeds max block range"])
        .says("hyperliquid", -32602, "query exceeds max block range 100000")
        .seen_in(ERPC),
    logs(&["exceeds max results"])
        .says("hosted nodes", -32602, "query exceeds max results 20000")
        .seen_in(FOUNDRY_12687),
    logs(&["is bigger than range limit"])
        .says("hosted nodes", -32602, "invalid params")
        .data(r#"{"error_id":"a1","payload":"range 20000 is bigger than range limit 2000"}"#)
        .seen_in(LIDO_395),
    logs(&["ranges over", "blocks are not supported"])
        .says("drpc", 35, "ranges over 10000 blocks are not supported on freetier")
        .seen_in(FOUNDRY_12687),
    logs(&["range", "exceeds limit of"])
        .only(LOGS)
        .says("hosted nodes", -32602, "range 1048576 exceeds limit of 1000")
        .seen_in(INFURA_237),
    logs(&["max range: "])
        .says("cloudflare", -32047, "Invalid eth_getLogs request. Max range: 800")
        .seen_in(ERPC),
    logs(&["maximum block range: "])
        .says("publicnode", -32701, "exceed maximum block range: 50000")
        .seen_in(ERPC),
    logs(&["maximum allowed number of requested blocks is"])
        .says("thirdweb", -32602, "Maximum allowed number of requested blocks is 1000")
        .seen_in(ERPC),
    logs(&["limited to", " block"])
        .only(LOGS)
        .says("blockpi", -32602, "eth_getLogs range limited to 1024 block")
        .seen_in(ERPC),
    logs(&["up to a", "block range"])
        .says("aurora", -32600, "You can make eth_getLogs requests with up to a 2000 block range.")
        .seen_in(ERPC),
    logs(&["block range limit exceeded"])
        .says("chainstack", -32600, "Block range limit exceeded. See more details at the plan's limits.")
        .seen_in(ERPC),
    logs(&["please limit the query to at most"])
        .says("coinbase", -32602, "please limit the query to at most 1000 blocks")
        .seen_in(ERPC),
    logs(&["maximum [from, to] blocks distance"])
        .says("ankr", -32000, "maximum [from, to] blocks distance: 3000")
        .seen_in(ERPC),
    logs(&["logs matched by query exceeds limit"])
        .says("arbitrum", -32000, "logs matched by query exceeds limit of 10000")
        .seen_in(ERPC),
    logs(&["specify less number of address"])
        .says("hosted nodes", -32000, "specify less number of address")
        .seen_in(ERPC),
    logs(&["exceed max addresses or topics"])
        .says("geth", -32000, "exceed max addresses or topics per search position")
        .seen_in(ERPC),
    logs(&["this query contains", "filters. the current limit is"])
        .says("hosted nodes", -32000, "This query contains 2000 filters. The current limit is 1000")
        .seen_in(ERPC),
    logs(&["response is too big"])
        .only(LOGS)
        .says("reth", -32008, "Response is too big")
        .data(r#""Exceeded max limit of 167772160""#)
        .seen_in(ERPC),
    logs(&["backend response too large"])
        .only(LOGS)
        .says("proxyd", -32020, "backend response too large")
        .under(500)
        .seen_in(PROXYD),
    // The same limits where there is no range to split.
    row(Fault(FaultKind::TooLarge), &["response is too big"])
        .to("debug_traceTransaction")
        .says("reth", -32008, "Response is too big")
        .data(r#""Exceeded max limit of 167772160""#)
        .seen_in(RETH),
    row(Fault(FaultKind::TooLarge), &["backend response too large"])
        .says("proxyd", -32020, "backend response too large")
        .under(500)
        .seen_in(PROXYD),
    row(Fault(FaultKind::TooLarge), &["request body too large"])
        .says("proxyd", -32021, "request body too large")
        .under(413)
        .seen_in(PROXYD),
    row(Fault(FaultKind::TooLarge), &["too many rpc calls in batch request"])
        .says("proxyd", -32014, "too many RPC calls in batch request")
        .seen_in(PROXYD),
    row(Fault(FaultKind::TooLarge), &["response too large"])
        .says("geth", -32003, "response too large")
        .seen_in(GETH),
];

/// History that the endpoint does not hold, and tags that it does not serve.
pub(super) static HISTORY: &[Entry] = &[
    row(Unsupported, &["pending block is not available"])
        .says("geth", -32000, "pending block is not available")
        .seen_in(DSHACKLE),
    // Geth says so until it has seen one.
    row(NotYet, &["safe block not found"]).says("geth", -32000, "safe block not found").seen_in(DSHACKLE),
    row(NotYet, &["finalized block not found"])
        .says("geth", -32000, "finalized block not found")
        .seen_in(DSHACKLE),
    row(Unsupported, &["finalized is not a supported"])
        .says("fantom, hosted", -32602, "finalized is not a supported commitment level")
        .seen_in(ERPC),
    row(Unsupported, &["not a supported commitment"])
        .says("hosted nodes", -32602, "safe is not a supported commitment level")
        .seen_in(ERPC),
    row(Unsupported, &["malformed blocknumber"])
        .says("harmony", -32602, "malformed blocknumber \"finalized\"")
        .seen_in(ERPC),
    row(Unsupported, &["invalid blockhash finalized"])
        .says("hosted nodes", -32602, "invalid blockhash finalized")
        .seen_in(ERPC),
    row(Missing, &["missing trie node"])
        .says("geth", -32000, "missing trie node abababab (path ) state 0xabab is not available")
        .seen_in(GETH),
    row(Missing, &["no state available for block"])
        .says("nethermind", -32002, "No state available for block 0x5a50c00d")
        .seen_in(ERPC),
    row(Missing, &["historical state not available in path scheme"])
        .says("geth", -32000, "historical state not available in path scheme yet")
        .seen_in(ERPC),
    row(Missing, &["state histories haven't been fully indexed yet"])
        .says("geth, bsc", -32000, "state histories haven't been fully indexed yet")
        .seen_in(GETH),
    row(Missing, &["required historical state unavailable"])
        .says("geth", -32000, "required historical state unavailable (reexec=128)")
        .to("debug_traceTransaction")
        .seen_in(GETH),
    row(Missing, &["historical state that is not available"])
        .says("monad", -32602, "Request might be querying historical state that is not available.")
        .seen_in(ERPC),
    row(Missing, &["historical state", "is not available"])
        .says("geth", -32000, "historical state 5a50c00d is not available")
        .seen_in(GETH),
    row(Missing, &["state 0x", "is not available"])
        .says("geth", -32000, "state 0x5a50c00d is not available")
        .seen_in(GETH),
    row(Missing, &["state is not available"])
        .says("geth, bsc", -32000, "state is not available")
        .seen_in(ERPC),
    row(Missing, &["state at block", "is pruned"])
        .says("reth", -32000, "state at block #1000 is pruned")
        .seen_in(RETH),
    row(Missing, &["node state is pruned"]).says("kava", -32000, "Node state is pruned").seen_in(ERPC),
    row(Missing, &["lowest height is"])
        .says("cronos, kava", -32000, "height 5 is not available, lowest height is 18000")
        .seen_in(ERPC),
    row(Missing, &["has been pruned; earliest available is"])
        .says("hosted nodes", -32000, "block #5 has been pruned; earliest available is #18000")
        .seen_in(DSHACKLE),
    row(Missing, &["version has either been pruned"])
        .says(
            "cronos",
            -32000,
            "version does not exist: failed to load state: Version has either been pruned, or is \
             for a future block height",
        )
        .seen_in(ERPC),
    row(Missing, &["state already discarded for"])
        .says("moonbeam", -32603, "State already discarded for 0x5a50c00d")
        .seen_in(ERPC),
    row(Missing, &["your node is running with state pruning"])
        .says(
            "fuse",
            -32000,
            "This request is not supported because your node is running with state pruning. Run \
             with --pruning=archive.",
        )
        .seen_in(ERPC),
    row(Missing, &["purged for block"])
        .says("parity", -32000, "state purged for block 1000")
        .seen_in(DSHACKLE),
    row(Missing, &["old data not available due to pruning"])
        .says("erigon", -32000, "old data not available due to pruning")
        .seen_in(ERPC),
    row(Missing, &["but data before txnum=", "not available"])
        .says(
            "erigon",
            -32000,
            "seekInFiles(invIndex=receipt,txNum=5) but data before txNum=100 not available",
        )
        .seen_in(ERIGON),
    row(Missing, &["no historical rpc is available for this historical"])
        .says("op-geth", -32000, "no historical RPC is available for this historical request")
        .seen_in(ERPC),
    row(Missing, &["historical backend error"])
        .says("op-geth", -32000, "historical backend error")
        .seen_in(ERPC),
    row(Missing, &["no state found for block"])
        .says("op nodes", -32000, "no state found for block 0x5a50c00d")
        .seen_in(ERPC),
    row(Missing, &["unsupported block number"])
        .says("arbitrum", -32000, "unsupported block number 5")
        .seen_in(ERPC),
    row(Missing, &["block with such an id is pruned"])
        .says("zksync", -32000, "Block with such an ID is pruned")
        .seen_in(ERPC),
    row(Missing, &["state not found for block"])
        .says("rootstock", -32000, "State not found for block with hash 0x5a50c00d")
        .seen_in(DSHACKLE),
    row(Missing, &["evm module does not exist on height"])
        .says("sei", -32000, "evm module does not exist on height 5")
        .seen_in(ERPC),
    row(Missing, &["failed to load state at height"])
        .says("0g", -32000, "failed to load state at height 5")
        .seen_in(ERPC),
    row(Missing, &["state does not maintain archive data"])
        .says("fantom", -32000, "state does not maintain archive data")
        .seen_in(ERPC),
    row(Missing, &["empty reader set"]).says("bsc", -32000, "empty reader set").seen_in(ERPC),
    row(Missing, &["snapshot stale"])
        .says("bsc", -32000, "snapshot stale")
        .seen_in("bnb-chain/bsc issue 3270"),
    row(Missing, &["cannot be older than 128 blocks"])
        .says("cloudflare", -32043, "Requested data cannot be older than 128 blocks.")
        .seen_in(WEB3_PROXY),
    row(Missing, &["does not have access to archive state"])
        .says("infura", -32002, "project ID does not have access to archive state")
        .seen_in("infura, quoted by hardhat's documentation"),
    row(Missing, &["archive requests require a"])
        .says("publicnode", -32602, "Archive requests require a personal token.")
        .under(403)
        .seen_in("publicnode, and AntSeed/antseed issue 841"),
    row(Unsupported, &["access to archival, debug, or trace data is not included"])
        .only(TRACE)
        .to("debug_traceTransaction")
        .says(
            "chainstack",
            -32002,
            "Access to archival, debug, or trace data is not included in your current plan.",
        )
        .seen_in(ERPC),
    row(Missing, &["access to archival, debug, or trace data is not included"])
        .says(
            "chainstack",
            -32002,
            "Access to archival, debug, or trace data is not included in your current plan.",
        )
        .seen_in(ERPC),
    row(Missing, &["exceeds maximum proof window"])
        .to("eth_getProof")
        .says("reth", -32000, "distance to target block exceeds maximum proof window")
        .seen_in(ERPC),
    row(Missing, &["requested block is too old"])
        .to("eth_getProof")
        .says("erigon", -32000, "requested block is too old, block must be within 1000 blocks of the head")
        .seen_in(ERPC),
    row(Missing, &["proofs are available only for the 'latest' block"])
        .to("eth_getProof")
        .says("erigon", -32000, "proofs are available only for the 'latest' block")
        .seen_in(ERPC),
    row(Missing, &["cannot find evm iavl store"])
        .to("eth_getProof")
        .says("sei", -32000, "cannot find EVM IAVL store")
        .seen_in(ERPC),
    row(Missing, &["pruned history unavailable"])
        .to("eth_getLogs")
        .says("geth, erigon, xlayer", 4444, "pruned history unavailable")
        .seen_in(GETH),
    row(Missing, &["neither stored nor reproducible from state history"])
        .to("eth_getTransactionReceipt")
        .says(
            "nethermind",
            -32602,
            "Receipts for block 5 (0x5a50c00d) are neither stored nor reproducible from state history.",
        )
        .seen_in("nethermind, quoted by an operator"),
    row(Missing, &["transaction indexing is in progress"])
        .to("eth_getTransactionReceipt")
        .says("geth", -32000, "transaction indexing is in progress")
        .data(r#""transaction indexing is in progress""#)
        .seen_in(GETH),
    row(Missing, &["genesis is not traceable"])
        .to("debug_traceBlockByNumber")
        .says("geth", -32000, "genesis is not traceable")
        .seen_in(GETH),
    // The filter is another endpoint's, or has expired. Whoever made it makes it anew.
    row(Missing, &["filter not found"])
        .to("eth_getFilterChanges")
        .says("geth, zksync", -32000, "filter not found")
        .seen_in(DSHACKLE),
];

/// Blocks that the endpoint has not seen.
pub(super) static FRONTIER: &[Entry] = &[
    row(OutOfRange, &["blockoutofrangeerror", "block height is"])
        .says("anvil", -32602, "BlockOutOfRangeError: block height is 3 but requested was 8")
        .seen_in(ANVIL),
    row(OutOfRange, &["received invalid block tag", "latest block number is"])
        .says("hardhat", -32000, "Received invalid block tag 8. Latest block number is 3")
        .data(r#"{"message":"Received invalid block tag 8. Latest block number is 3"}"#)
        .seen_in(HARDHAT),
    row(NotYet, &["resource not found"])
        .codes(&[-32001])
        .says("anvil", -32001, "Resource not found")
        .seen_in(ANVIL),
    row(NotYet, &["header not found"]).says("geth, op, ganache", -32000, "header not found").seen_in(ALLOY),
    row(NotYet, &["header for hash not found"])
        .says("geth, op, avalanche", -32000, "header for hash not found")
        .seen_in(RUNDLER),
    row(NotYet, &["is not currently canonical"])
        .says("geth", -32000, "hash 0x5a50c00d is not currently canonical")
        .seen_in(RUNDLER),
    row(NotYet, &["beyond current head"])
        .to("eth_getLogs")
        .says("reth", -32602, "block range extends beyond current head block")
        .seen_in(RETH),
    row(NotYet, &["request beyond head block"])
        .says("geth", -32000, "request beyond head block: requested 8, head 3")
        .seen_in(ERPC),
    row(NotYet, &["is beyond tip"])
        .says("hosted nodes", -32001, "requested height is beyond tip")
        .seen_in("a public incident report"),
    row(NotYet, &["after last accepted block"])
        .says("avalanche", -32000, "requested from block 8 after last accepted block 3")
        .seen_in(ERPC),
    row(NotYet, &["cannot query unfinalized"])
        .says("avalanche", -32000, "cannot query unfinalized data")
        .seen_in(ERPC),
    row(NotYet, &["height must be less than or equal"])
        .says("cosmos", -32000, "height must be less than or equal to the current blockchain height 3")
        .seen_in(ERPC),
    row(NotYet, &["greater than latest"])
        .says("cosmos", -32000, "requested block height is greater than latest block height")
        .seen_in(ERPC),
    row(NotYet, &["block is out of range"]).says("proxyd", -32019, "block is out of range").seen_in(PROXYD),
    row(NotYet, &["blockhash cannot be found"])
        .to("eth_getLogs")
        .says("hardhat", -32602, "blockHash cannot be found")
        .seen_in(HARDHAT),
    row(NotYet, &["block not found"])
        .says("reth, nethermind", -32001, "block not found: hash 0x5a50c00d")
        .seen_in(RUNDLER),
    row(NotYet, &["block #", " not found"])
        .says("geth, when it traces", -32000, "block #7654321 not found")
        .seen_in(GETH),
    row(NotYet, &["block 0x", " not found"])
        .says("erigon", -32000, "block 0x5a50c00d5a50c00d not found")
        .seen_in(RUNDLER),
    row(NotYet, &["unknown block"])
        .to("eth_getLogs")
        .says("geth, anvil", -32000, "unknown block")
        .seen_in(ANVIL),
    row(NotYet, &["could not find block"])
        .says("nethermind", -32001, "could not find block 8")
        .seen_in(DSHACKLE),
    row(NotYet, &["block height passed is invalid"])
        .says("hyperliquid", -32603, "block height passed is invalid")
        .seen_in(ERPC),
    // Asked for by hash: nothing tells a new transaction from a forgotten one.
    row(NotYet, &["transaction not found"])
        .to("debug_traceTransaction")
        .says("geth", -32000, "transaction not found")
        .seen_in(ERPC),
    row(NotYet, &["cannot find transaction"])
        .to("debug_traceTransaction")
        .says("nethermind", -32001, "cannot find transaction 0x5a50c00d")
        .seen_in(ERPC),
    row(Invalid, &["invalid block range params"])
        .to("eth_getLogs")
        .says("geth", -32000, "invalid block range params")
        .seen_in(GETH),
    row(Missing, &["invalid block range"])
        .to("eth_getLogs")
        .says("drpc", -32000, "invalid block range")
        .seen_in(ERPC),
];
