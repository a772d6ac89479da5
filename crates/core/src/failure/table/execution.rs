//! The EVM said no. First of all rows: a contract chooses its revert reason, and may choose "nonce too low".

use super::*;
use Class::Reverted;

pub(super) static ROWS: &[Entry] = &[
    row(Reverted, &[])
        .codes(&[3])
        .shape(Shape::Bytes)
        .says("anvil", 3, "execution reverted: custom error 0x5a50c00d")
        .data(r#""0x5a50c00d""#)
        .seen_in(ANVIL),
    row(Reverted, &["execution reverted"]).says("geth", -32000, "execution reverted: nope").seen_in(GETH),
    row(Reverted, &["execution was reverted"])
        .says("polygon-edge", -32600, "execution was reverted")
        .seen_in("polygon-edge, through hardhat issue 8040"),
    row(Reverted, &["vm exception while processing transaction: revert"])
        .says("ganache, moonbeam", -32000, "VM Exception while processing transaction: revert nope")
        .data(r#"{"stack":"RuntimeError: VM Exception while processing transaction","name":"RuntimeError"}"#)
        .seen_in(GANACHE),
    row(Reverted, &["transaction reverted"])
        .says("hardhat", 3, "Transaction reverted without a reason string")
        .seen_in(HARDHAT),
    row(Reverted, &["transaction ran out of gas"])
        .says("hardhat", -32603, "Transaction ran out of gas")
        .to("eth_estimateGas")
        .seen_in("hardhat"),
    row(Reverted, &["reverted 0x"])
        .says("parity, nethermind", -32015, "Reverted 0x82b42900")
        .to("eth_estimateGas")
        .seen_in("usecannon/cannon issue 165"),
    row(Reverted, &["reverted "])
        .codes(&[-32015])
        .says("nethermind", -32015, "VM execution error.")
        .data(r#""Reverted ERC721: invalid token""#)
        .seen_in("NethermindEth/nethermind issue 6024"),
    row(Reverted, &["processing transaction: invalid opcode"])
        .says("ganache", -32000, "VM Exception while processing transaction: invalid opcode")
        .seen_in("ganache"),
    row(Reverted, &["processing transaction: out of gas"])
        .says("ganache", -32000, "VM Exception while processing transaction: out of gas")
        .seen_in("ganache"),
    row(Reverted, &["bad instruction f"])
        .says("parity", -32015, "VM execution error.")
        .data(r#""Bad instruction fe""#)
        .seen_in(ERPC),
    row(Reverted, &["bad jump"])
        .only(SIMULATE)
        .says("parity", -32015, "VM execution error.")
        .data(r#""Bad jump destination 0x1f""#)
        .seen_in(ERPC),
    row(Reverted, &["out of stack"])
        .only(SIMULATE)
        .says("parity", -32015, "VM execution error.")
        .data(r#""Out of stack""#)
        .seen_in(ERPC),
    row(Reverted, &["invalid jump destination"])
        .says("geth", -32000, "invalid jump destination")
        .seen_in(ERPC),
    row(Reverted, &["stack limit reached 1024"])
        .says("geth", -32000, "stack limit reached 1024 (1023)")
        .seen_in(ERPC),
    row(Reverted, &["stack underflow"]).says("geth", -32000, "stack underflow (0 <=> 1)").seen_in(GETH),
    row(Reverted, &["invalid opcode"]).says("geth", -32000, "invalid opcode: INVALID").seen_in(ERPC),
    // The halt reasons of revm one by one: "EVM error FatalExternalError" is a failed fork, not a revert.
    row(Reverted, &["evm error", "invalidjump"]).says("reth", -32000, "EVM error: InvalidJump").seen_in(ERPC),
    row(Reverted, &["evm error", "stackunderflow"])
        .says("reth", -32000, "EVM error: StackUnderflow")
        .seen_in(ERPC),
    row(Reverted, &["evm error", "stackoverflow"])
        .says("reth", -32000, "EVM error: StackOverflow")
        .seen_in(ERPC),
    row(Reverted, &["evm error", "outofgas"]).says("reth", -32000, "EVM error: OutOfGas").seen_in(ERPC),
    row(Reverted, &["evm error", "opcodenotfound"])
        .says("reth", -32000, "EVM error: OpcodeNotFound")
        .seen_in(ERPC),
    row(Reverted, &["evm error", "invalidfeopcode"])
        .says("reth, anvil", -32000, "EVM error: InvalidFEOpcode")
        .seen_in(ERPC),
    // With a fee in the request, geth's allowance is what the balance buys. None at all: no funds.
    tx(RefusalKind::InsufficientFunds, &["gas required exceeds allowance (0)"])
        .to("eth_estimateGas")
        .says("geth", -32000, "gas required exceeds allowance (0)")
        .seen_in(GETH),
    row(Reverted, &["gas required exceeds allowance"])
        .to("eth_estimateGas")
        .says("geth", -32000, "gas required exceeds allowance (30000000) or always failing transaction")
        .seen_in(VIEM),
    row(Reverted, &["out of gas"]).only(SIMULATE).says("geth, parity", -32000, "out of gas").seen_in(ERPC),
];
