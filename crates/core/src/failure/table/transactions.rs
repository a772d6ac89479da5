//! Why a transaction was refused. Words that other replies could contain count for sends only.

use super::*;
use Class::{Fault, NonceMismatch, NotYet};
use RefusalKind::*;

pub(super) static ROWS: &[Entry] = &[
    // Nonce: in use by these bytes, or by others.
    row(NotYet, &["unknown transaction"])
        .to("eth_getTransactionReceipt")
        .says("geth", -32000, "unknown transaction")
        .seen_in("OpenZeppelin relayer, which guards its `known transaction` against it"),
    tx(AlreadyKnown, &["already known"])
        .says("geth, reth, erigon", -32000, "already known")
        .seen_in(CHAINLINK),
    tx(AlreadyKnown, &["known transaction"])
        .only(SEND)
        .says("hardhat, besu, old geth", -32000, "Known transaction: 0x5a50c00d")
        .seen_in(HARDHAT),
    tx(AlreadyKnown, &["transaction with the same hash was already imported"])
        .says("parity", -32010, "Transaction with the same hash was already imported.")
        .seen_in(CHAINLINK),
    tx(AlreadyKnown, &["alreadyknown"]).says("nethermind, gnosis", -32010, "AlreadyKnown").seen_in(CHAINLINK),
    tx(AlreadyKnown, &["pool(alreadyimported"])
        .says("moonriver", -32603, "submit transaction to pool failed: Pool(AlreadyImported(Any { .. }))")
        .seen_in(CHAINLINK),
    tx(AlreadyKnown, &["transaction already imported"])
        .says("anvil", -32003, "transaction already imported")
        .seen_in(ANVIL),
    tx(AlreadyKnown, &["tx already exists in cache"])
        .says("sei", -32000, "tx already exists in cache")
        .seen_in(CHAINLINK),
    tx(AlreadyKnown, &["tx already exists in tx pool cache"])
        .says("ethermint", -32000, "tx already exists in tx pool cache")
        .seen_in(HYPERLANE),
    tx(AlreadyKnown, &["tx already exist in the fetch queue"])
        .says("ethermint", -32000, "tx already exist in the fetch queue")
        .seen_in(HYPERLANE),
    tx(AlreadyKnown, &["existing tx with same hash"])
        .says("erigon", -32000, "INTERNAL_ERROR: existing tx with same hash")
        .seen_in(WEB3_PROXY),
    tx(AlreadyKnown, &["already in mempool"])
        .only(SEND)
        .says("routers", -32000, "transaction already in mempool")
        .seen_in(ERPC),
    tx(AlreadyKnown, &["already exists in mempool"])
        .only(SEND)
        .says("routers", -32000, "tx already exists in mempool")
        .seen_in(ERPC),
    tx(AlreadyKnown, &["transaction already exists"])
        .only(SEND)
        .says("routers", -32000, "transaction already exists")
        .seen_in(ERPC),
    tx(AlreadyKnown, &["already have transaction"])
        .only(SEND)
        .says("routers", -32000, "already have transaction")
        .seen_in(ERPC),
    tx(NonceTooLow, &["nonce too low"])
        .says("geth, erigon, reth, anvil", -32000, "nonce too low: next nonce 8, tx nonce 7")
        .seen_in(CHAINLINK),
    tx(NonceTooLow, &["nonce is too low"])
        .says("parity", -32010, "Transaction nonce is too low. Try incrementing the nonce.")
        .seen_in(CHAINLINK),
    tx(NonceTooLow, &["oldnonce"])
        .says("nethermind", -32010, "OldNonce, Current nonce: 22, nonce of rejected tx: 17")
        .seen_in(CHAINLINK),
    tx(NonceTooLow, &["nonce has already been used"])
        .says("ethers dialect", -32000, "nonce has already been used")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooLow, &["pool(stale)"])
        .says("moonriver", -32603, "submit transaction to pool failed: Pool(Stale)")
        .seen_in(CHAINLINK),
    tx(NonceTooLow, &["minimum expected nonce is"])
        .says("filecoin", 1, "minimum expected nonce is 63, got 62")
        .seen_in("lotus, in a public report"),
    // Its receipt is there: the nonce is used, by these bytes.
    tx(NonceTooLow, &["transaction already finalized"])
        .says("harmony", -32000, "transaction already finalized")
        .seen_in(CHAINLINK),
    row(NonceMismatch, &["invalid nonce; got", "invalid sequence"])
        .to("eth_sendRawTransaction")
        .says("cronos", -32000, "invalid nonce; got 5, expected 7: invalid sequence")
        .seen_in(RUNDLER),
    row(NonceMismatch, &["doesn't have the correct nonce"])
        .to("eth_sendRawTransaction")
        .says(
            "ganache",
            -32000,
            "the tx doesn't have the correct nonce. account has nonce of: 5 tx has nonce of: 1",
        )
        .seen_in(GANACHE),
    row(NonceMismatch, &["invalid transaction nonce"])
        .to("eth_sendRawTransaction")
        .says("old arbitrum", -32000, "invalid transaction nonce")
        .seen_in(CHAINLINK),
    tx(NonceTooHigh, &["nonce too high"])
        .says("geth, erigon, hardhat, anvil", -32000, "nonce too high")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["nonce is too high"])
        .says("routers", -32000, "nonce is too high")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["noncegap"])
        .says("nethermind", -32010, "NonceGap, Future nonce. Expected nonce: 9")
        .seen_in(CHAINLINK),
    tx(NonceTooHigh, &["nonce too far in the future"])
        .says("besu", -32000, "Nonce too far in the future")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["exceeds next nonce"])
        .says("nethermind", -32010, "transaction nonce exceeds next nonce")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["nonce out of range"])
        .says("routers", -32000, "nonce out of range")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["tx-nonce-too-high"])
        .says("hosted signers", -32000, "tx-nonce-too-high")
        .seen_in(OPENZEPPELIN),
    tx(NonceTooHigh, &["future transaction tries to replace pending"])
        .says("geth", -32000, "future transaction tries to replace pending")
        .seen_in(RUNDLER),
    tx(NonceTooHigh, &["gapped-nonce tx from delegated accounts"])
        .says("geth", -32000, "gapped-nonce tx from delegated accounts")
        .seen_in(GETH),
    tx(InFlightLimit, &["in-flight transaction limit reached for delegated accounts"])
        .says("geth", -32000, "in-flight transaction limit reached for delegated accounts")
        .seen_in(GETH),
    tx(InFlightLimit, &["account limit exceeded"])
        .only(SEND)
        .says("geth", -32000, "account limit exceeded")
        .seen_in(GETH),
    // Another transaction holds the nonce.
    tx(ReplacementUnderpriced, &["replacement transaction underpriced"])
        .says("geth, reth, besu, anvil, hardhat", -32000, "replacement transaction underpriced")
        .seen_in(CHAINLINK),
    tx(ReplacementUnderpriced, &["could not replace existing tx"])
        .says("erigon", -32000, "INTERNAL_ERROR: could not replace existing tx")
        .seen_in(RUNDLER),
    tx(ReplacementUnderpriced, &["there is another transaction with same nonce in the queue"])
        .says(
            "parity",
            -32010,
            "Transaction gas price 1 is too low. There is another transaction with same nonce in \
             the queue. Try increasing the gas price or incrementing the nonce.",
        )
        .seen_in(CHAINLINK),
    tx(ReplacementUnderpriced, &["another tx which has the same nonce in the tx pool"])
        .says("klaytn", -32000, "there is another tx which has the same nonce in the tx pool")
        .seen_in(CHAINLINK),
    tx(ReplacementUnderpriced, &["existing transaction had higher priority"])
        .says("monad", -32603, "An existing transaction had higher priority")
        .seen_in(ERPC),
    tx(ReplacementUnderpriced, &["newer transaction had higher priority"])
        .says("monad", -32603, "A newer transaction had higher priority")
        .seen_in(ERPC),
    // Blob and ordinary transactions of an account exclude each other.
    tx(ReplacementUnderpriced, &["address already reserved"])
        .says("geth", -32000, "address already reserved")
        .seen_in(OPTIMISM),
    // Signed by the node itself: other bytes have the nonce.
    tx(ReplacementUnderpriced, &["ownnoncealreadyused"])
        .says("nethermind", -32010, "OwnNonceAlreadyUsed")
        .seen_in(CHAINLINK),
    // Fees.
    tx(FeeBelowBaseFee, &["max fee per gas less than block base fee"])
        .says(
            "geth, reth, arbitrum, zksync",
            -32000,
            "max fee per gas less than block base fee: address 0x1111, maxFeePerGas: 1, baseFee: 7",
        )
        .seen_in(ANVIL),
    tx(FeeBelowBaseFee, &["fee cap less than block base fee"])
        .says("geth", -32000, "fee cap less than block base fee")
        .seen_in(VIEM),
    tx(FeeBelowBaseFee, &["gas price less than block base fee"])
        .says("astar", -32603, "gas price less than block base fee")
        .seen_in(CHAINLINK),
    tx(FeeBelowBaseFee, &["transaction is outdated"])
        .only(SEND)
        .says("moonbeam", -32603, "transaction is outdated")
        .seen_in(VIEM),
    tx(FeeBelowBaseFee, &["too low for the next block", "basefeepergas"])
        .says(
            "hardhat",
            -32000,
            "Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas \
             of 875000000",
        )
        .seen_in(HARDHAT),
    tx(FeeBelowBaseFee, &["less than the block's basefeepergas"])
        .says(
            "ganache",
            -32000,
            "VM Exception while processing transaction: Transaction's maxFeePerGas (1) is less than \
             the block's baseFeePerGas (875000000) (vm hf=shanghai)",
        )
        .seen_in(GANACHE),
    tx(FeeBelowBaseFee, &["base fee exceeds gas limit"])
        .says("geth", -32000, "base fee exceeds gas limit")
        .seen_in(ETHERS),
    tx(FeeFieldsInvalid, &["max priority fee per gas higher than max fee per gas"])
        .says("geth", -32000, "max priority fee per gas higher than max fee per gas")
        .seen_in(VIEM),
    tx(FeeFieldsInvalid, &["tip higher than fee cap"])
        .says("geth", -32000, "tip higher than fee cap")
        .seen_in(VIEM),
    tx(FeeFieldsInvalid, &["max fee per gas higher than 2^"])
        .says("geth, zksync", -32000, "max fee per gas higher than 2^256-1")
        .seen_in(VIEM),
    tx(FeeFieldsInvalid, &["fee cap higher than 2^"])
        .says("geth", -32000, "fee cap higher than 2^256-1")
        .seen_in(VIEM),
    tx(FeeFieldsInvalid, &["invalid gas fee cap"])
        .says("klaytn", -32000, "invalid gas fee cap")
        .seen_in(CHAINLINK),
    tx(FeeAboveNodeCap, &["tx fee (", "exceeds the configured cap"])
        .says("geth, erigon", -32000, "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)")
        .seen_in(CHAINLINK),
    tx(FeeAboveNodeCap, &["transaction fee cap exceeded"])
        .says("besu", -32000, "Transaction fee cap exceeded")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["transaction underpriced"])
        .says("geth, ganache", -32000, "transaction underpriced: gas tip cap 1, minimum needed 1000000")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["transaction gas price below minimum"])
        .says("bor", -32000, "transaction gas price below minimum: gas tip cap 1, minimum needed 25000000000")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["gas price below configured minimum gas price"])
        .says("besu", -32009, "Gas price below configured minimum gas price")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["is below configured minimum gas price"])
        .says("hedera", -32009, "Gas price '1' is below configured minimum gas price '710000000000'")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["does not satisfy your node's minimal gas price"])
        .says(
            "parity",
            -32010,
            "Transaction gas price is too low. It does not satisfy your node's minimal gas price \
             (minimal: 50, got: 1). Try increasing the gas price.",
        )
        .seen_in(CHAINLINK),
    tx(Underpriced, &["gas price too low"])
        .says("arbitrum, metis", -32000, "gas price too low: 1 wei, use at least tx.gasPrice = 11 wei")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["gasprice is less than gas price minimum floor"])
        .says("celo", -32000, "gasprice is less than gas price minimum floor")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["feetoolow"])
        .says("nethermind", -32010, "FeeTooLow, MaxFeePerGas too low. MaxFeePerGas: 50, BaseFee: 100")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["transaction fee too low"])
        .says("monad", -32603, "Transaction fee too low")
        .seen_in(ERPC),
    tx(Underpriced, &["insufficient fee"])
        .only(SEND)
        .says("sei", -32000, "insufficient fee")
        .seen_in(CHAINLINK),
    tx(Underpriced, &["fair pubdata price too high"])
        .says("zksync", -32000, "Fair pubdata price too high")
        .seen_in(CHAINLINK),
    // Funds.
    tx(InsufficientFunds, &["insufficient funds for gas"])
        .says(
            "geth, reth, anvil, zksync",
            -32000,
            "insufficient funds for gas * price + value: balance 1000, tx cost 2000, overshot 1000",
        )
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficient funds for transfer"])
        .to("eth_call")
        .says("geth", -32000, "err: insufficient funds for transfer (supplied gas 50000000)")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficient balance for transfer"])
        .says("geth", -32000, "insufficient balance for transfer")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["transaction would cause overdraft"])
        .says("geth", -32000, "transaction would cause overdraft")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["not enough funds for gas"])
        .says("arbitrum", -32000, "not enough funds for gas")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["upfront cost exceeds account balance"])
        .says("besu", -32004, "Upfront cost exceeds account balance")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficient funds. the account you tried"])
        .says(
            "parity",
            -32010,
            "Insufficient funds. The account you tried to send transaction from does not have \
             enough funds. Required 100 and got: 5.",
        )
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficient balance for transaction"])
        .says("parity", -32010, "Insufficient balance for transaction. Balance=5, Cost=100")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficientfunds"])
        .says("nethermind", -32010, "InsufficientFunds, Account balance: 5, cumulative cost: 100")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["insufficient_payer_balance"])
        .says("hedera", -32000, "failed precheck with status INSUFFICIENT_PAYER_BALANCE")
        .seen_in(CHAINLINK),
    tx(InsufficientFunds, &["signer had insufficient balance"])
        .says("monad", -32603, "Signer had insufficient balance")
        .seen_in(ERPC),
    tx(InsufficientFunds, &["exceeds transaction sender account balance"])
        .says("ethers dialect", -32000, "exceeds transaction sender account balance")
        .seen_in(VIEM),
    tx(InsufficientFunds, &["user cant pay the bills"])
        .says("velas", -32000, "transaction execution error: user cant pay the bills")
        .seen_in(THIRDWEB),
    tx(InsufficientFunds, &["sender doesn't have enough funds to send tx"])
        .says(
            "hardhat",
            -32000,
            "Sender doesn't have enough funds to send tx. The max upfront cost is: 100 and the \
             sender's balance is: 0.",
        )
        .seen_in(HARDHAT),
    tx(InsufficientFunds, &["processing transaction: insufficient balance"])
        .to("eth_call")
        .says("ganache", -32000, "VM Exception while processing transaction: insufficient balance")
        .seen_in(GANACHE),
    // Gas.
    tx(BlockGasLimit, &["exceeds block gas limit"])
        .says("geth, erigon, besu, hedera, ganache", -32000, "exceeds block gas limit")
        .seen_in(GANACHE),
    tx(BlockGasLimit, &["transaction cost exceeds current gas limit"])
        .says(
            "parity",
            -32010,
            "Transaction cost exceeds current gas limit. Limit: 100, got: 200. Try decreasing \
             supplied gas.",
        )
        .seen_in(CHAINLINK),
    tx(BlockGasLimit, &["supplied gas is beyond limit"])
        .says("parity", -32010, "Supplied gas is beyond limit.")
        .seen_in(CHAINLINK),
    tx(BlockGasLimit, &["gaslimitexceeded"])
        .says("nethermind", -32010, "GasLimitExceeded, Gas limit: 100, gas limit of rejected tx: 200")
        .seen_in(CHAINLINK),
    tx(BlockGasLimit, &["gas limit reached"]).says("geth", -32000, "gas limit reached").seen_in(VIEM),
    tx(BlockGasLimit, &["intrinsic gas too high"])
        .says("anvil", -32000, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit")
        .seen_in(ANVIL),
    tx(BlockGasLimit, &["exceeds transaction gas cap"])
        .says(
            "hardhat",
            -32000,
            "Transaction gas limit is 30000000 and exceeds transaction gas cap of 16777216",
        )
        .seen_in(HARDHAT),
    tx(BlockGasLimit, &["transaction gas limit too high"])
        .says("geth", -32000, "transaction gas limit too high (cap: 16777216, tx: 30000000)")
        .seen_in(GETH),
    tx(IntrinsicGas, &["intrinsic gas too low"])
        .says("geth, reth, erigon, anvil", -32000, "intrinsic gas too low: gas 20000, minimum needed 21000")
        .seen_in(ANVIL),
    tx(IntrinsicGas, &["intrinsic gas exceeds gas limit"])
        .says("besu", -32003, "Intrinsic gas exceeds gas limit")
        .seen_in(CHAINLINK),
    tx(IntrinsicGas, &["not enough gas to cover minimal cost"])
        .says(
            "parity",
            -32010,
            "Transaction gas is too low. There is not enough gas to cover minimal cost of the \
             transaction (minimal: 21000, got: 50). Try increasing supplied gas.",
        )
        .seen_in(CHAINLINK),
    tx(IntrinsicGas, &["insufficient of intrinsic gas required"])
        .says(
            "hedera",
            -32003,
            "Transaction gas limit provided '20000' is insufficient of intrinsic gas required '21000'",
        )
        .seen_in(CHAINLINK),
    tx(IntrinsicGas, &["insufficient gas for floor data gas cost"])
        .says("geth", -32000, "insufficient gas for floor data gas cost: gas 21000, minimum needed 24000")
        .seen_in(GETH),
    tx(IntrinsicGas, &["transaction requires at least", "gas but got"])
        .says("hardhat", -32000, "Transaction requires at least 21000 gas but got 20000")
        .seen_in(HARDHAT),
    tx(IntrinsicGas, &["gas limit too low"])
        .only(SEND)
        .says("monad", -32603, "Gas limit too low")
        .seen_in(ERPC),
    tx(IntrinsicGas, &["not enough gas for transaction validation"])
        .says("zksync", -32000, "Not enough gas for transaction validation")
        .seen_in(CHAINLINK),
    tx(IntrinsicGas, &["failed to pay the fee to the operator"])
        .says("zksync", -32000, "Failed to pay the fee to the operator")
        .seen_in(CHAINLINK),
    // The pool and its owner.
    tx(SenderRateLimit, &["sender is over rate limit"])
        .says("proxyd", -32017, "sender is over rate limit")
        .under(429)
        .seen_in(PROXYD),
    tx(PoolFull, &["txpool is full"])
        .says("geth, celo, klaytn, reth", -32000, "txpool is full")
        .seen_in(CHAINLINK),
    tx(PoolFull, &["too many transactions in the queue"])
        .says(
            "parity",
            -32010,
            "There are too many transactions in the queue. Your transaction was dropped due to \
             limit. Try increasing the fee.",
        )
        .seen_in(CHAINLINK),
    tx(PoolFull, &["pending tx pool full"])
        .says("arbitrum", -32000, "sequencer pending tx pool full, please try again")
        .seen_in(CHAINLINK),
    tx(PoolFull, &["queue full"]).only(SEND).says("arbitrum", -32000, "queue full").seen_in(CHAINLINK),
    tx(PoolFull, &["pool limit"]).only(SEND).says("hosted nodes", -32000, "pool limit").seen_in(THIRDWEB),
    tx(Policy, &["rejected by chain policy"])
        .says("robinhood", -32000, "Transaction rejected by chain policy")
        .seen_in(RUNDLER),
    tx(Policy, &["is banned in local queue"])
        .says("parity", -32010, "Sender is banned in local queue.")
        .seen_in(CHAINLINK),
    tx(Policy, &["transaction is not permitted"])
        .says("parity", -32010, "Transaction is not permitted.")
        .seen_in(CHAINLINK),
    tx(Policy, &["forbidden sender address"])
        .says("arbitrum", -32000, "forbidden sender address")
        .seen_in(CHAINLINK),
    tx(Policy, &["blacklist"])
        .only(SEND)
        .says("harmony", -32000, "`to` address of transaction in blacklist")
        .seen_in(CHAINLINK),
    tx(Policy, &["not enough", "counters to continue the execution"])
        .says("polygon zkevm", -32000, "not enough keccak counters to continue the execution")
        .seen_in(CHAINLINK),
    tx(Policy, &["out of counters at node level"])
        .says("polygon zkevm", -32000, "out of counters at node level (Steps)")
        .seen_in(CHAINLINK),
    tx(Policy, &["condition not met"])
        .to("eth_sendRawTransactionConditional")
        .says("arbitrum, op-geth", -32003, "condition not met")
        .seen_in(RUNDLER),
    // It was taken, and the node stopped waiting for its block.
    row(Fault(FaultKind::Timeout), &["was added to the", "but wasn't processed in"])
        .to("eth_sendRawTransactionSync")
        .says("geth, base", 4, "The transaction was added to the transaction pool but wasn't processed in 2s")
        .data(r#""0x5a50c00d5a50c00d5a50c00d5a50c00d5a50c00d5a50c00d5a50c00d5a50c00d""#)
        .seen_in(GETH),
    row(Fault(FaultKind::Timeout), &["transaction confirmation timeout"])
        .to("eth_sendRawTransactionSync")
        .says("anvil", -32603, "Transaction confirmation timeout")
        .seen_in(ANVIL),
    // The bytes themselves.
    tx(Malformed, &["transaction type not supported"])
        .says("geth", -32000, "transaction type not supported")
        .seen_in(RUNDLER),
    tx(Malformed, &["transaction type not valid"])
        .says("geth", -32000, "transaction type not valid in this context")
        .seen_in(VIEM),
    tx(Malformed, &["invalid transaction type"])
        .says("hardhat", -32602, "Invalid transaction type 18.")
        .seen_in(HARDHAT),
    tx(Malformed, &["failed to decode transaction"])
        .says("anvil", -32602, "Failed to decode transaction")
        .seen_in(ANVIL),
    tx(Malformed, &["could not decode transaction"])
        .says(
            "ganache",
            -32700,
            "Could not decode transaction: invalid RLP: total length is larger than the data",
        )
        .seen_in(GANACHE),
    tx(Malformed, &["only replay-protected (eip-155)"])
        .says("geth", -32000, "only replay-protected (EIP-155) transactions allowed over RPC")
        .seen_in(ETHERS),
    tx(Malformed, &["invalid rlp data"])
        .says("parity", -32602, "Invalid RLP data: RlpExpectedToBeList")
        .seen_in(CHAINLINK),
    tx(Malformed, &["typed transaction too short"])
        .says("geth", -32000, "typed transaction too short")
        .seen_in(ERPC),
    tx(Malformed, &["rlp: expected input list"])
        .says("geth", -32000, "rlp: expected input list for types.LegacyTx")
        .seen_in(ERPC),
    tx(Malformed, &["rlp: value size exceeds"])
        .says("geth", -32000, "rlp: value size exceeds available input length")
        .seen_in(ERPC),
    tx(Malformed, &["invalid chain id for signer"])
        .says("geth, anvil", -32000, "invalid chain id for signer: have 1 want 31337")
        .seen_in(ANVIL),
    tx(Malformed, &["send a raw transaction with an invalid chainid"])
        .says(
            "hardhat",
            -32602,
            "Trying to send a raw transaction with an invalid chainId. The expected chainId is 31337",
        )
        .seen_in(HARDHAT),
    tx(Malformed, &["invalid chain id (", "for chain with id"])
        .says("ganache", -32000, "Invalid chain id (5) for chain with id 31337.")
        .seen_in(GANACHE),
    tx(Malformed, &["invalid sender"]).only(SEND).says("geth", -32000, "invalid sender").seen_in(CHAINLINK),
    tx(Malformed, &["invalid signature"])
        .only(SEND)
        .says("klaytn", -32000, "Invalid signature")
        .seen_in(CHAINLINK),
    tx(Malformed, &["status invalid_signature"])
        .says("hedera", -32000, "transaction failed precheck with status INVALID_SIGNATURE")
        .seen_in(CHAINLINK),
    tx(Malformed, &["negative value"]).only(SEND).says("geth", -32000, "negative value").seen_in(CHAINLINK),
    tx(Malformed, &["gas uint64 overflow"]).says("geth", -32000, "gas uint64 overflow").seen_in(CHAINLINK),
    tx(Malformed, &["oversized data"])
        .says("geth, zksync", -32000, "oversized data: transaction size 131073, limit 131072")
        .seen_in(OPTIMISM),
    tx(Malformed, &["transaction is too big"])
        .says("parity", -32010, "Transaction is too big, see chain specification for the limit.")
        .seen_in(CHAINLINK),
    tx(Malformed, &["tx too large"])
        .says("sei", -32000, "Tx too large. Max size is 2048576, but got 2048577")
        .seen_in(CHAINLINK),
];
