// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Token} from "../src/Token.sol";
import {vm} from "./Vm.sol";

contract TokenTest {
    address private constant ALICE = address(0xA11CE);

    Token private token;

    function setUp() public {
        token = new Token("Backstay", "STAY");
    }

    function test_the_deployer_owns_the_contract_and_no_tokens() public view {
        vm.assertEq(token.name(), "Backstay");
        vm.assertEq(token.symbol(), "STAY");
        vm.assertEq(token.owner(), address(this));
        vm.assertEq(token.totalSupply(), 0);
        vm.assertEq(token.balanceOf(address(this)), 0);
    }

    function test_the_owner_mints(uint256 amount) public {
        vm.expectEmit(address(token));
        emit IERC20.Transfer(address(0), ALICE, amount);
        token.mint(ALICE, amount);

        vm.assertEq(token.balanceOf(ALICE), amount);
        vm.assertEq(token.totalSupply(), amount);
    }

    function test_nobody_else_mints() public {
        vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, ALICE));
        vm.prank(ALICE);
        token.mint(ALICE, 1);
    }
}
