// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Parameters} from "./Parameters.sol";
import {Token} from "./Token.sol";

/// @title A registry of context graphs, each paid for with a deposit.
/// @notice The deposits stay in this contract.
contract ContextGraphs {
    using SafeERC20 for Token;

    /// @notice The token that deposits are paid in.
    Token public immutable token;

    /// @notice Where the current deposit is read from.
    Parameters public immutable parameters;

    /// @notice Who created the context graph of a key; zero for a key that is free.
    mapping(bytes32 key => address) public ownerOf;

    /// @notice A context graph was created.
    event ContextGraphCreated(bytes32 indexed key, address indexed owner, uint256 deposit);

    /// @notice The caller lets this contract take less than the deposit.
    /// @param token The token that the allowance is in.
    /// @param allowance What the caller allows now.
    /// @param expected The deposit.
    error TooLowAllowance(address token, uint256 allowance, uint256 expected);

    /// @notice The key has an owner already.
    error AlreadyRegistered(bytes32 key);

    /// @param token_ The token that deposits are paid in.
    /// @param parameters_ Where the current deposit is read from.
    constructor(Token token_, Parameters parameters_) {
        token = token_;
        parameters = parameters_;
    }

    /// @notice Takes the deposit from the caller and makes it the owner of the key.
    /// @dev The key is looked at before the allowance, so that a repeated call learns that the first one
    /// succeeded, not that the allowance is used up.
    /// @param key The key of the new context graph.
    function createContextGraph(bytes32 key) external {
        if (ownerOf[key] != address(0)) revert AlreadyRegistered(key);

        uint256 deposit = parameters.deposit();
        uint256 allowance = token.allowance(msg.sender, address(this));
        if (allowance < deposit) revert TooLowAllowance(address(token), allowance, deposit);

        ownerOf[key] = msg.sender;
        emit ContextGraphCreated(key, msg.sender, deposit);
        token.safeTransferFrom(msg.sender, address(this), deposit);
    }
}
