// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";

/// @title Parameters that the other contracts read at each use.
/// @notice A caller that read one earlier may act on a value that has changed since.
contract Parameters is Ownable {
    /// @notice What the creation of a context graph costs, in the token's smallest unit. Starts at zero.
    uint256 public deposit;

    /// @notice The deposit changed.
    event DepositSet(uint256 previous, uint256 current);

    constructor() Ownable(msg.sender) {}

    /// @notice Sets the deposit that holds from now on. Only the owner may.
    /// @param current The deposit, in the token's smallest unit.
    function setDeposit(uint256 current) external onlyOwner {
        emit DepositSet(deposit, current);
        deposit = current;
    }
}
