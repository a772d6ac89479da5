//! Whether an endpoint serves the chain that it should (E1).

use std::collections::BTreeMap;

use alloy_primitives::B256;

use crate::units::EndpointName;

/// What is known of an endpoint's identity.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Identity {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// Chain id, genesis and branch are right.
    Verified,
    /// It no longer holds block 0, and nothing else has shown yet that it is of the right history: asked last, never
    /// sent to.
    Unverified,
    /// One of them is not; the text says which and what was seen. Never selected, re-checked.
    Wrong(String),
}

/// Two hashes that as many endpoints serve, each with one of its endpoints, so that nothing decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    /// One.
    pub left: (B256, EndpointName),
    /// The other.
    pub right: (B256, EndpointName),
}

/// The hash that block 0 must have: the configured one, else the recorded one, else the one that most
/// endpoints serve. `None` when nothing is known.
///
/// # Errors
///
/// [`Tie`] when it is up to the endpoints and no majority decides.
pub fn judge_genesis(
    configured: Option<B256>,
    recorded: Option<B256>,
    votes: &[(EndpointName, B256)],
) -> Result<Option<B256>, Tie> {
    match configured.or(recorded) {
        Some(hash) => Ok(Some(hash)),
        None => majority(votes),
    }
}

/// The hash that the block at a common recent height must have: the one that most endpoints serve. A fork
/// passes chain id and genesis and mines whatever it is sent; only this tells it apart.
///
/// # Errors
///
/// [`Tie`] when no majority decides.
pub fn judge_branch(votes: &[(EndpointName, B256)]) -> Result<Option<B256>, Tie> {
    majority(votes)
}

fn majority(votes: &[(EndpointName, B256)]) -> Result<Option<B256>, Tie> {
    let mut counts: BTreeMap<B256, (usize, &EndpointName)> = BTreeMap::new();
    for (name, hash) in votes {
        counts.entry(*hash).or_insert((0, name)).0 += 1;
    }
    let Some((best, (most, name))) = counts.iter().max_by_key(|(_, (count, _))| *count) else {
        return Ok(None);
    };
    match counts.iter().find(|(hash, (count, _))| count == most && *hash != best) {
        Some((other, (_, other_name))) => {
            Err(Tie { left: (*best, (*name).clone()), right: (*other, (*other_name).clone()) })
        }
        None => Ok(Some(*best)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(hashes: &[u8]) -> Vec<(EndpointName, B256)> {
        let vote =
            |(i, hash): (usize, &u8)| (EndpointName::new(format!("e{i}")), B256::with_last_byte(*hash));
        hashes.iter().enumerate().map(vote).collect()
    }

    #[test]
    fn what_is_configured_outranks_what_is_recorded_and_that_outranks_votes() {
        let hash = B256::with_last_byte;
        let check = |configured: Option<u8>, recorded: Option<u8>, expected: Option<u8>| {
            let judged = judge_genesis(configured.map(hash), recorded.map(hash), &votes(&[1, 1, 2]));
            assert_eq!(judged, Ok(expected.map(hash)));
        };
        check(Some(3), Some(2), Some(3));
        check(None, Some(2), Some(2));
        check(None, None, Some(1));
    }

    #[test]
    fn a_tie_names_both_sides() {
        let tie = judge_branch(&votes(&[1, 2])).expect_err("one against one");
        let mut hashes = [tie.left.0, tie.right.0];
        hashes.sort();
        assert_eq!(hashes, [B256::with_last_byte(1), B256::with_last_byte(2)]);
        assert_ne!(tie.left.1, tie.right.1);
        assert_eq!(judge_branch(&votes(&[1, 2, 2])), Ok(Some(B256::with_last_byte(2))));
        assert_eq!(judge_branch(&[]), Ok(None));
    }
}
