// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// @dev The cheat codes of Forge that the tests use.
interface Vm {
    function assertEq(uint256 left, uint256 right) external pure;
    function assertEq(address left, address right) external pure;
    function assertEq(string calldata left, string calldata right) external pure;
    function expectEmit(address emitter) external;
    function expectRevert(bytes calldata revertData) external;
    function prank(address sender) external;
}

/// @dev Where Forge answers cheat codes: the address that `keccak256("hevm cheat code")` ends in.
Vm constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
