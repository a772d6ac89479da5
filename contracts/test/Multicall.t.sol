// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Multicall} from "../src/Multicall.sol";
import {Parameters} from "../src/Parameters.sol";
import {vm} from "./Vm.sol";

contract MulticallTest {
    bytes private constant FAILED = abi.encodeWithSignature("Error(string)", "Multicall3: call failed");

    Multicall private multicall;
    Parameters private parameters;

    function setUp() public {
        multicall = new Multicall();
        parameters = new Parameters();
        parameters.setDeposit(7);
    }

    function test_each_call_gets_its_own_answer() public {
        Multicall.Call[] memory calls = new Multicall.Call[](2);
        calls[0] = Multicall.Call(address(parameters), abi.encodeCall(parameters.deposit, ()));
        calls[1] = Multicall.Call(address(multicall), abi.encodeCall(multicall.getBlockNumber, ()));
        (uint256 number, bytes[] memory answers) = multicall.aggregate(calls);
        vm.assertEq(number, block.number);
        vm.assertEq(abi.decode(answers[0], (uint256)), 7);
        vm.assertEq(abi.decode(answers[1], (uint256)), block.number);
    }

    function test_a_call_that_may_fail_does_not_fail_the_others() public {
        Multicall.Call3[] memory calls = new Multicall.Call3[](2);
        // Nobody but the owner sets the deposit, and the multicall is not the owner.
        calls[0] = Multicall.Call3(address(parameters), true, abi.encodeCall(parameters.setDeposit, (9)));
        calls[1] = Multicall.Call3(address(parameters), false, abi.encodeCall(parameters.deposit, ()));
        Multicall.Result[] memory results = multicall.aggregate3(calls);
        require(!results[0].success && results[1].success);
        vm.assertEq(abi.decode(results[1].returnData, (uint256)), 7);

        calls[0].allowFailure = false;
        vm.expectRevert(FAILED);
        multicall.aggregate3(calls);
    }

    function test_all_or_none_have_to_succeed() public {
        Multicall.Call[] memory calls = new Multicall.Call[](1);
        calls[0] = Multicall.Call(address(parameters), abi.encodeCall(parameters.setDeposit, (9)));
        require(!multicall.tryAggregate(false, calls)[0].success);
        vm.expectRevert(FAILED);
        multicall.tryAggregate(true, calls);
        vm.expectRevert(FAILED);
        multicall.aggregate(calls);
    }

    function test_balances_are_those_of_the_chain() public view {
        vm.assertEq(multicall.getEthBalance(address(this)), address(this).balance);
    }
}
