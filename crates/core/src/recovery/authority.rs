//! What a plan may do: the caller's authority, checked by the SDK for every flow (F2).

use alloy_primitives::{Address, U256};
use alloy_sol_types::{SolCall, sol};

use crate::{
    error::{Error, ErrorKind, Result},
    tx::{Content, Grant},
};

sol! {
    function approve(address spender, uint256 amount) external returns (bool);

    interface OtherWays {
        function increaseAllowance(address spender, uint256 added) external returns (bool);
        function increaseApproval(address spender, uint256 added) external returns (bool);
        function approveAndCall(address spender, uint256 amount, bytes data) external returns (bool);
        function setApprovalForAll(address operator, bool approved) external;
        function authorizeOperator(address operator) external;
    }
    interface Permit {
        function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;
    }
    interface DaiPermit {
        function permit(address holder, address spender, uint256 nonce, uint256 expiry, bool allowed, uint8 v, bytes32 r, bytes32 s) external;
    }
    interface Permit2 {
        function approve(address token, address spender, uint160 amount, uint48 expiration) external;
    }
}

/// Checks one step of a plan against the grants.
///
/// An ERC-20 `approve` needs a grant for its token and spender with a cap that covers the amount. The other known
/// ways to hand out spending power cannot be held against a cap and are refused. What a plan's call does beyond
/// that, inside another contract say, is up to the flow that the caller has chosen.
///
/// # Errors
///
/// [`ErrorKind::NotGranted`] for an approval beyond the grants; [`ErrorKind::Recovery`] for a way of
/// approving that no grant can cover, and for an `approve` that cannot be decoded.
pub fn authorise(call: &Content, grants: &[Grant]) -> Result<()> {
    let Some(selector) = call.input.get(..4) else { return Ok(()) };
    if selector == approveCall::SELECTOR {
        let Ok(approve) = approveCall::abi_decode(&call.input) else {
            return Err(refusal(call, "an `approve` that cannot be decoded"));
        };
        return within(call.to, approve.spender, approve.amount, grants);
    }
    let other_ways = [
        (OtherWays::increaseAllowanceCall::SELECTOR, "`increaseAllowance`"),
        (OtherWays::increaseApprovalCall::SELECTOR, "`increaseApproval`"),
        (OtherWays::approveAndCallCall::SELECTOR, "`approveAndCall`"),
        (OtherWays::setApprovalForAllCall::SELECTOR, "`setApprovalForAll`"),
        (OtherWays::authorizeOperatorCall::SELECTOR, "`authorizeOperator`"),
        (Permit::permitCall::SELECTOR, "`permit`"),
        (DaiPermit::permitCall::SELECTOR, "`permit`"),
        (Permit2::approveCall::SELECTOR, "Permit2's `approve`"),
    ];
    match other_ways.iter().find(|(other, _)| selector == other) {
        Some((_, what)) => Err(refusal(call, &format!("{what}, which no grant bounds; use `approve`"))),
        None => Ok(()),
    }
}

fn within(token: Address, spender: Address, amount: U256, grants: &[Grant]) -> Result<()> {
    let cap = grants
        .iter()
        .filter(|grant| grant.token == token && grant.spender == spender)
        .map(|grant| grant.cap)
        .max();
    if cap.is_some_and(|cap| amount <= cap) {
        return Ok(());
    }
    let message = match cap {
        Some(cap) => format!(
            "recovery wants to approve {amount} of token {token} to {spender}, but the grant's cap is {cap}; \
             nothing was approved; raise the cap if that amount is right"
        ),
        None => format!(
            "recovery wants to approve {amount} of token {token} to {spender}, for which there is no grant; \
             nothing was approved; add a grant to the intent if that is right"
        ),
    };
    Err(Error::new(ErrorKind::NotGranted { token, spender, amount, cap }, message))
}

fn refusal(call: &Content, what: &str) -> Error {
    Error::new(ErrorKind::Recovery, format!("a plan wants to call {} with {what}; it was not sent", call.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Address = Address::repeat_byte(1);
    const SPENDER: Address = Address::repeat_byte(2);

    fn call(input: Vec<u8>) -> Content {
        Content { to: TOKEN, value: U256::ZERO, input: input.into() }
    }

    fn approve(spender: Address, amount: u64) -> Content {
        call(approveCall { spender, amount: U256::from(amount) }.abi_encode())
    }

    #[test]
    fn approvals_stay_within_their_grant() {
        let grants = [Grant { token: TOKEN, spender: SPENDER, cap: U256::from(100) }];
        let check = |call: &Content, expected: Option<Option<u64>>| match (authorise(call, &grants), expected)
        {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => match error.kind() {
                ErrorKind::NotGranted { cap, .. } => assert_eq!(*cap, expected.map(U256::from)),
                other => panic!("{other:?}"),
            },
            (got, expected) => panic!("{got:?}, expected {expected:?}"),
        };
        check(&approve(SPENDER, 100), None);
        check(&approve(SPENDER, 101), Some(Some(100)));
        check(&approve(Address::ZERO, 1), Some(None));
        check(&Content { to: SPENDER, ..approve(SPENDER, 1) }, Some(None));
        check(&call(b"some other call".to_vec()), None);
        check(&call(Vec::new()), None);
    }

    #[test]
    fn ways_that_no_cap_bounds_are_refused_and_named() {
        let grants = [Grant { token: TOKEN, spender: SPENDER, cap: U256::MAX }];
        let check = |input: Vec<u8>, named: &str| {
            let error = authorise(&call(input), &grants).expect_err("refused");
            assert!(error.to_string().contains(named), "{error}");
        };
        check(
            OtherWays::increaseAllowanceCall { spender: SPENDER, added: U256::ONE }.abi_encode(),
            "increaseAllowance",
        );
        check(
            OtherWays::setApprovalForAllCall { operator: SPENDER, approved: true }.abi_encode(),
            "setApprovalForAll",
        );
        check(approveCall::SELECTOR.to_vec(), "cannot be decoded");
    }
}
