// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {ContextGraphs} from "../src/ContextGraphs.sol";
import {Parameters} from "../src/Parameters.sol";
import {Token} from "../src/Token.sol";
import {vm} from "./Vm.sol";

contract ContextGraphsTest {
    address private constant ALICE = address(0xA11CE);
    address private constant BOB = address(0xB0B);
    bytes32 private constant KEY = keccak256("a context graph");
    uint256 private constant DEPOSIT = 100;

    Token private token;
    Parameters private parameters;
    ContextGraphs private graphs;

    function setUp() public {
        token = new Token("Backstay", "STAY");
        parameters = new Parameters();
        parameters.setDeposit(DEPOSIT);
        graphs = new ContextGraphs(token, parameters);
        token.mint(ALICE, 10 * DEPOSIT);
        token.mint(BOB, 10 * DEPOSIT);
    }

    function test_it_knows_its_contracts() public view {
        vm.assertEq(address(graphs.token()), address(token));
        vm.assertEq(address(graphs.parameters()), address(parameters));
    }

    function test_creation_takes_the_deposit_and_records_the_owner() public {
        vm.assertEq(graphs.ownerOf(KEY), address(0));
        approve(ALICE, DEPOSIT);

        vm.expectEmit(address(graphs));
        emit ContextGraphs.ContextGraphCreated(KEY, ALICE, DEPOSIT);
        create(ALICE, KEY);

        vm.assertEq(graphs.ownerOf(KEY), ALICE);
        vm.assertEq(token.balanceOf(address(graphs)), DEPOSIT);
        vm.assertEq(token.balanceOf(ALICE), 9 * DEPOSIT);
        vm.assertEq(token.allowance(ALICE, address(graphs)), 0);
    }

    function test_more_allowance_than_the_deposit_is_left_over() public {
        approve(ALICE, DEPOSIT + 1);
        create(ALICE, KEY);
        vm.assertEq(token.allowance(ALICE, address(graphs)), 1);
    }

    function test_each_key_has_its_own_owner() public {
        bytes32 other = keccak256("another context graph");
        approve(ALICE, DEPOSIT);
        approve(BOB, DEPOSIT);
        create(ALICE, KEY);
        create(BOB, other);
        vm.assertEq(graphs.ownerOf(KEY), ALICE);
        vm.assertEq(graphs.ownerOf(other), BOB);
    }

    function test_an_allowance_below_the_deposit_is_refused(uint256 allowance) public {
        allowance = allowance % DEPOSIT;
        approve(ALICE, allowance);
        expectTooLowAllowance(allowance, DEPOSIT);
        create(ALICE, KEY);
    }

    function test_the_deposit_is_read_at_each_creation() public {
        approve(ALICE, DEPOSIT);
        parameters.setDeposit(DEPOSIT + 1);
        expectTooLowAllowance(DEPOSIT, DEPOSIT + 1);
        create(ALICE, KEY);
    }

    function test_a_zero_deposit_needs_no_allowance() public {
        parameters.setDeposit(0);
        create(ALICE, KEY);
        vm.assertEq(graphs.ownerOf(KEY), ALICE);
    }

    function test_a_taken_key_is_refused() public {
        approve(ALICE, DEPOSIT);
        create(ALICE, KEY);

        approve(BOB, DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(ContextGraphs.AlreadyRegistered.selector, KEY));
        create(BOB, KEY);
    }

    function test_a_repeated_creation_learns_of_the_first_before_its_allowance() public {
        approve(ALICE, DEPOSIT);
        create(ALICE, KEY);

        vm.expectRevert(abi.encodeWithSelector(ContextGraphs.AlreadyRegistered.selector, KEY));
        create(ALICE, KEY);
    }

    function test_the_tokens_own_error_reaches_the_caller() public {
        address poor = address(0x900);
        approve(poor, DEPOSIT);
        vm.expectRevert(
            abi.encodeWithSelector(IERC20Errors.ERC20InsufficientBalance.selector, poor, 0, DEPOSIT)
        );
        create(poor, KEY);
    }

    function approve(address owner, uint256 amount) private {
        vm.prank(owner);
        token.approve(address(graphs), amount);
    }

    function create(address owner, bytes32 key) private {
        vm.prank(owner);
        graphs.createContextGraph(key);
    }

    function expectTooLowAllowance(uint256 allowance, uint256 expected) private {
        vm.expectRevert(
            abi.encodeWithSelector(
                ContextGraphs.TooLowAllowance.selector, address(token), allowance, expected
            )
        );
    }
}
