//! Numbers in a reply: how long to wait, which range would do, which block is the oldest.

use std::time::Duration;

use serde_json::Value;

use super::reply::Seen;

/// Nobody means more; the number is the endpoint's, and it must not silence us for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a rate-limited caller is asked to wait: the longest of what header, message and `data` say.
pub(super) fn wait(seen: &Seen<'_>) -> Option<Duration> {
    const MARKERS: [&str; 5] = ["try again in ", "retry in ", "retry after ", "retry-after: ", "wait "];
    let in_texts = seen
        .texts()
        .filter_map(|text| MARKERS.iter().find_map(|marker| duration(after(&text.lower, marker)?)))
        .max();
    let in_data = seen.data.as_ref().and_then(|data| {
        // Infura nests its hint; others put theirs at the top.
        let rate = data.get("rate").unwrap_or(data);
        ["backoff_seconds", "retry_after", "retryAfter", "try_again_in"].iter().find_map(|key| {
            match rate.get(key)? {
                Value::Number(seconds) => seconds_of(seconds.as_f64()?),
                Value::String(text) => duration(&text.to_ascii_lowercase()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            }
        })
    });
    seen.retry_after.max(in_texts).max(in_data).map(|wait| wait.min(LONGEST_WAIT))
}

/// The range that the endpoint says would work: in `data` (`from`, `to`), or in the message as `range [a, b]`
/// or `retry with the range a-b`.
pub(super) fn range(seen: &Seen<'_>) -> Option<(u64, u64)> {
    let in_data = || {
        let data = seen.data.as_ref()?;
        let height = |key: &str| match data.get(key)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => number(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        Some((height("from")?, height("to")?))
    };
    let in_text = |text: &str| {
        let (open, between) = match after(text, "retry with the range ") {
            Some(open) => (open, '-'),
            None => (after(after(text, "range")?, "[")?, ','),
        };
        let (first, rest) = open.split_once(between)?;
        Some((whole_number(first.trim())?, number(rest.trim_start())?))
    };
    seen.texts().find_map(|text| in_text(&text.lower)).or_else(in_data).filter(|(first, last)| first <= last)
}

/// The oldest block that the endpoint says it holds.
pub(super) fn oldest_block(text: &str) -> Option<u64> {
    ["earliest available is", "lowest height is"].iter().find_map(|marker| number(after(text, marker)?))
}

/// The height that was asked for and the endpoint's head. `None` where a hash was asked for.
pub(super) fn asked_and_head(text: &str) -> Option<(u64, u64)> {
    [("requested was ", "block height is "), ("invalid block tag ", "latest block number is ")]
        .iter()
        .find_map(|(asked, head)| Some((number(after(text, asked)?)?, number(after(text, head)?)?)))
}

/// The nonce that the endpoint expected and the one that it was given.
pub(super) fn expected_and_given(text: &str) -> Option<(u64, u64)> {
    [("account has nonce of: ", "tx has nonce of: "), ("expected ", "got ")]
        .iter()
        .find_map(|(expected, given)| Some((number(after(text, expected)?)?, number(after(text, given)?)?)))
}

/// Whether a text begins as a JSON object or array and ends before it is closed.
pub(super) fn is_cut_short(text: &str) -> bool {
    text.starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof())
}

fn after<'t>(text: &'t str, marker: &str) -> Option<&'t str> {
    text.find(marker).map(|at| &text[at + marker.len()..])
}

/// The number at the start of a text: `0x1f`, `1000`, `10,000`, `#5`. `None` where it does not fit.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start_matches([' ', '#', ':', '"', '\'', '(', '=']);
    if let Some(hex) = text.strip_prefix("0x") {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        return u64::from_str_radix(&hex[..end], 16).ok();
    }
    let bytes = text.as_bytes();
    let mut value: u64 = 0;
    let mut digits = 0_usize;
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                digits += 1;
            }
            // A thousands separator has three digits behind it.
            b',' if digits > 0
                && bytes.len() > i + 3
                && bytes[i + 1..=i + 3].iter().all(u8::is_ascii_digit) => {}
            _ => break,
        }
    }
    (digits > 0).then_some(value)
}

/// A text that is a number and nothing else.
fn whole_number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| number(text)).flatten()
}

/// The duration at the start of a text: `4ms`, `1.5s`, `30 seconds`, `2 minutes`; seconds without a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    // "in 5." ends a sentence.
    let value: f64 = text[..end].trim_end_matches('.').parse().ok()?;
    let unit = text[end..].trim_start();
    let unit = &unit[..unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len())];
    let seconds = match unit {
        "ms" | "millis" | "millisecond" | "milliseconds" => value / 1000.0,
        "m" | "min" | "mins" | "minute" | "minutes" => value * 60.0,
        "h" | "hour" | "hours" => value * 3600.0,
        _ => value,
    };
    seconds_of(seconds)
}

fn seconds_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().map(|wait| wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_dress() {
        let check = |text, expect| assert_eq!(number(text), expect, "{text:?}");
        check("0x1f]", Some(31));
        check("10,000 range", Some(10_000));
        check("1,2", Some(1));
        check("#5", Some(5));
        check(": 7", Some(7));
        check("", None);
        check("0x", None);
        check("none", None);
        check("99999999999999999999999", None);
        check("0xabababababababababababababababab", None);
    }

    #[test]
    fn durations_are_read_in_every_unit() {
        let check = |text, millis: Option<u64>| {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}")
        };
        check("4ms", Some(4));
        check("1.5s", Some(1500));
        check("30 seconds", Some(30_000));
        check("2 minutes.", Some(120_000));
        check("5.", Some(5000));
        check("1h", Some(3_600_000));
        check("soon", None);
        check("99999999999999999999999999999999h", None);
        check("900000", Some(86_400_000));
    }
}
