// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Parameters} from "../src/Parameters.sol";
import {vm} from "./Vm.sol";

contract ParametersTest {
    address private constant ALICE = address(0xA11CE);

    Parameters private parameters;

    function setUp() public {
        parameters = new Parameters();
    }

    function test_the_deposit_starts_at_zero() public view {
        vm.assertEq(parameters.owner(), address(this));
        vm.assertEq(parameters.deposit(), 0);
    }

    function test_the_owner_sets_the_deposit(uint256 first, uint256 second) public {
        parameters.setDeposit(first);
        vm.assertEq(parameters.deposit(), first);

        vm.expectEmit(address(parameters));
        emit Parameters.DepositSet(first, second);
        parameters.setDeposit(second);
        vm.assertEq(parameters.deposit(), second);
    }

    function test_nobody_else_sets_the_deposit() public {
        vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, ALICE));
        vm.prank(ALICE);
        parameters.setDeposit(1);
    }
}
