//! What a duration in a configuration may be.

use std::time::Duration;

use crate::{Error, Result};

/// The longest duration that is taken: added to any moment that a clock shows, it is still a moment.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What a duration of zero means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Something: nothing is waited for, or it happens at once.
    Meant,
    /// Nothing that could be meant.
    Refused,
}

/// Checks durations by their keys.
///
/// # Errors
///
/// A configuration error that names the first key whose duration is zero and may not be, or longer than a year.
pub fn durations<'a>(values: impl IntoIterator<Item = (&'a str, Duration, Zero)>) -> Result<()> {
    for (key, value, zero) in values {
        if value.is_zero() && zero == Zero::Refused {
            let hint = "give it a duration such as \"2s\", or leave it out for the default";
            return Err(Error::config(format!("`{key}` is zero; {hint}")));
        }
        if value > LONGEST {
            let hint = "nothing here waits longer than a year";
            return Err(Error::config(format!("`{key}` is {} days; {hint}", value.as_secs() / 86_400)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_more_than_a_year_are_named_by_their_key() {
        let check = |value, zero, expected: &str| {
            let error = durations([("ok", LONGEST, Zero::Refused), ("key", value, zero)]);
            assert_eq!(error.map_or_else(|error| error.to_string(), |()| String::new()), expected);
        };
        let zero = "`key` is zero; give it a duration such as \"2s\", or leave it out for the default";
        check(Duration::ZERO, Zero::Refused, zero);
        check(Duration::ZERO, Zero::Meant, "");
        check(Duration::from_nanos(1), Zero::Refused, "");
        check(LONGEST, Zero::Meant, "");
        let year = "`key` is 366 days; nothing here waits longer than a year";
        check(LONGEST + Duration::from_secs(86_400), Zero::Meant, year);
    }
}
