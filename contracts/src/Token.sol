// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title An ERC-20 token whose supply its owner mints.
/// @notice The supply starts at zero: the deployer owns the contract and no tokens.
contract Token is ERC20, Ownable {
    /// @param name_ The token's name.
    /// @param symbol_ The token's symbol.
    constructor(string memory name_, string memory symbol_) ERC20(name_, symbol_) Ownable(msg.sender) {}

    /// @notice Creates tokens. Only the owner may.
    /// @param to The account that receives them.
    /// @param amount How many, in the token's smallest unit.
    function mint(address to, uint256 amount) external onlyOwner {
        _mint(to, amount);
    }
}
