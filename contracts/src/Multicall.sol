// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// @title Many calls in one, answered by the interface of the Multicall3 that most chains have.
/// @notice Only the parts that reads need. It holds nothing and takes no ether.
contract Multicall {
    /// @dev A call that must not fail.
    struct Call {
        address target;
        bytes callData;
    }

    /// @dev A call that may fail where it says so.
    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    /// @dev What came of a call: its return data, or its revert data.
    struct Result {
        bool success;
        bytes returnData;
    }

    /// @notice A call failed that had to succeed. The text is that of the original.
    string private constant FAILED = "Multicall3: call failed";

    /// @notice Calls each; reverts when one fails.
    function aggregate(Call[] calldata calls) external returns (uint256 blockNumber, bytes[] memory returnData) {
        blockNumber = block.number;
        returnData = new bytes[](calls.length);
        for (uint256 i = 0; i < calls.length; i++) {
            Result memory result = _call(calls[i].target, calls[i].callData);
            require(result.success, FAILED);
            returnData[i] = result.returnData;
        }
    }

    /// @notice Calls each, and says of each whether it succeeded; reverts when one fails that had to succeed.
    function aggregate3(Call3[] calldata calls) external returns (Result[] memory results) {
        results = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; i++) {
            results[i] = _call(calls[i].target, calls[i].callData);
            require(results[i].success || calls[i].allowFailure, FAILED);
        }
    }

    /// @notice The same, where all must succeed or none has to.
    function tryAggregate(bool requireSuccess, Call[] calldata calls) external returns (Result[] memory results) {
        results = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; i++) {
            results[i] = _call(calls[i].target, calls[i].callData);
            require(results[i].success || !requireSuccess, FAILED);
        }
    }

    /// @notice The number of the block that this is read in.
    function getBlockNumber() external view returns (uint256 blockNumber) {
        return block.number;
    }

    /// @notice What an account has, in wei.
    function getEthBalance(address account) external view returns (uint256 balance) {
        return account.balance;
    }

    function _call(address target, bytes calldata input) private returns (Result memory result) {
        (result.success, result.returnData) = target.call(input);
    }
}
