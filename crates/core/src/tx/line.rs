//! The nonce line of one account.

/// The first nonce that the chain has not consumed and that nothing was signed for. `taken` holds the
/// signed ones.
///
/// A nonce that was given back lies below others that are out; taking the first free one fills that gap
/// before the line goes on, so that nothing waits behind it.
pub fn first_free(mined: u64, taken: impl IntoIterator<Item = u64>) -> u64 {
    let mut taken: Vec<u64> = taken.into_iter().filter(|nonce| *nonce >= mined).collect();
    taken.sort_unstable();
    taken.into_iter().fold(mined, |free, nonce| if nonce == free { free + 1 } else { free })
}

#[cfg(test)]
mod tests {
    use super::first_free;

    #[test]
    fn the_line_goes_on_after_what_is_signed_and_fills_gaps_first() {
        let check = |mined, taken: &[u64], free| assert_eq!(first_free(mined, taken.iter().copied()), free);
        check(0, &[], 0);
        check(3, &[], 3);
        check(3, &[3, 4], 5);
        check(3, &[5, 3], 4);
        check(3, &[0, 1, 2], 3);
        check(2, &[1, 3, 2], 4);
    }
}
