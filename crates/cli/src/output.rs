//! How things are printed.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde_json::Value;

/// A table without lines, which is easily searched.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// Writes a text. Whoever reads it may have seen enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes one JSON value.
pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    print(&format!("{value:#}\n"))
}

/// Text from elsewhere, in one line, without anything that a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for letter in text.chars() {
        // The marks of direction reorder a line, and the others of their kind hide in it.
        let hides =
            matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}');
        if letter.is_control() || hides {
            cleaned.extend(letter.escape_default());
        } else {
            cleaned.push(letter);
        }
    }
    cleaned
}

/// A time of day, to the millisecond.
pub(crate) fn time(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| "out of range".to_owned(), |at| format!("{at:.3}"))
}

/// A time of day, to the second.
pub(crate) fn second(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| "out of range".to_owned(), |at| format!("{at:.0}"))
}

/// How much later something was: `+1s 200ms`. Clocks differ and jump, so it may be earlier.
pub(crate) fn since(first: SystemTime, at: SystemTime) -> String {
    match at.duration_since(first) {
        Ok(later) => format!("+{}", duration(later)),
        Err(earlier) => format!("-{}", duration(earlier.duration())),
    }
}

/// How long ago something was.
pub(crate) fn age(at: SystemTime) -> String {
    let age = SystemTime::now().duration_since(at).unwrap_or_default();
    format!("{} ago", humantime::format_duration(Duration::from_secs(age.as_secs())))
}

fn duration(long: Duration) -> String {
    let shown = match long < Duration::from_secs(60) {
        true => Duration::from_millis(long.as_millis() as u64),
        false => Duration::from_secs(long.as_secs()),
    };
    humantime::format_duration(shown).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_utc_and_as_long_as_each_other() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        assert_eq!(
            (time(at), second(at)),
            ("2023-11-14T22:13:20.500Z".into(), "2023-11-14T22:13:20Z".into())
        );
        assert_eq!(time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50)), "out of range");
    }

    #[test]
    fn the_time_since_the_first_record_is_short_and_may_be_negative() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(since(at(0), at(1_204)), "+1s 204ms");
        assert_eq!(since(at(0), at(90_204)), "+1m 30s");
        assert_eq!(since(at(2_000), at(1_000)), "-1s");
    }

    #[test]
    fn text_from_elsewhere_cannot_command_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(clean("register:späßchen"), "register:späßchen");
    }
}
