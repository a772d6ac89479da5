//! Wordings that no row knows, so that each can be told once.

use std::collections::BTreeSet;

/// How many wordings are remembered. A node that writes something new each time is not told of for ever.
const REMEMBERED: usize = 128;
/// How much of a message is looked at, and how much of it is kept, in bytes.
const READ: usize = 1024;
const KEPT: usize = 160;
/// A run of letters and digits as long as this may be a key.
const KEY: usize = 20;
/// A run of hexadecimal digits as long as this is no word.
const HEX: usize = 8;

/// The wordings that were met.
#[derive(Clone, Debug, Default)]
pub struct Wordings(BTreeSet<String>);

/// Whether a wording was met before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is new. The text is fit to be shown.
    New(String),
    /// It was met before.
    Known,
    /// So many were met that no further ones are remembered. They are not told of.
    Full,
}

impl Wordings {
    /// Notes a message. Messages that differ only in numbers, hashes, addresses and URLs are one wording.
    pub fn note(&mut self, message: &str) -> News {
        let wording = wording(message);
        if self.0.contains(&wording) {
            return News::Known;
        }
        if self.0.len() >= REMEMBERED {
            return News::Full;
        }
        self.0.insert(wording.clone());
        News::New(wording)
    }
}

/// What a message says, aside from its particulars: numbers are `#`, hashes and addresses `<hex>`, whatever may
/// lead somewhere or be a key `<…>`. It has no control characters and is short: the text is an endpoint's.
pub fn wording(message: &str) -> String {
    let message = &message[..message.floor_char_boundary(READ)];
    let mut kept = String::new();
    for token in message.split(|c: char| c.is_whitespace() || c.is_control()) {
        // Marks that turn the direction of text, and the like, are left out first: one inside a URL or a key must
        // not hide it.
        let shown = |c: &char| c.is_alphanumeric() || c.is_ascii_punctuation();
        let token: String = token.chars().filter(shown).collect();
        if token.is_empty() {
            continue;
        }
        if kept.len() >= KEPT {
            break;
        }
        if !kept.is_empty() {
            kept.push(' ');
        }
        if leads_somewhere(&token) {
            kept.push_str("<…>");
        } else {
            plain(&token, &mut kept);
        }
    }
    kept.truncate(kept.floor_char_boundary(KEPT));
    kept
}

/// A URL, a host with a path, an address with a user.
fn leads_somewhere(token: &str) -> bool {
    token.contains("://") || token.contains('@') || (token.contains('/') && token.contains('.'))
}

/// Copies a token run by run: letters and digits, and what stands between.
fn plain(token: &str, into: &mut String) {
    let mut rest = token;
    while let Some(first) = rest.chars().next() {
        // An underscore or a hyphen is part of most keys.
        let in_run = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let end = rest.find(|c: char| in_run(c) != in_run(first)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        if !in_run(first) {
            into.push_str(run);
            continue;
        }
        let hex = run.strip_prefix("0x").or_else(|| run.strip_prefix("0X"));
        let digits = hex.unwrap_or(run);
        let all_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        // `facade` is a word; `0xfacade` is none.
        let a_number = hex.is_some() || digits.len() >= HEX && digits.bytes().any(|b| b.is_ascii_digit());
        if all_hex && a_number {
            into.push_str("<hex>");
        } else if run.len() >= KEY && (run.bytes().any(|byte| byte.is_ascii_digit()) || run.len() >= 2 * KEY)
        {
            into.push_str("<…>");
        } else {
            let mut number = false;
            for c in run.chars() {
                if !c.is_ascii_digit() {
                    into.push(c);
                } else if !number {
                    into.push('#');
                }
                number = c.is_ascii_digit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_that_differ_in_particulars_are_one_wording() {
        let check = |message: &str, expected: &str| assert_eq!(wording(message), expected, "{message}");
        check("the flux of block 123 is out", "the flux of block # is out");
        check("block 0x1f is odd, 0xABCDEF01 too", "block <hex> is odd, <hex> too");
        check("bad hash 82b4290082b42900.", "bad hash <hex>.");
        check("see https://rpc.example/v1/KEY?x=1 for more", "see <…> for more");
        check("denied (rpc.example.com/v2/secret)", "denied <…>");
        check("user:word@host said no", "<…> said no");
        check("key sk_live_4eC39HqLyjWDarjtT1 is blocked", "key <…> is blocked");
        check("a\u{1b}[31m red\r\nline\u{202e}turned", "a [#m red lineturned");
        check("at :\u{e000}//rpc.example/KEY and sk_live_4eC39\u{200b}HqLyjWDarjtT1", "at <…> and <…>");
        check("facade of deadbeef", "facade of deadbeef");
        check("", "");
    }

    #[test]
    fn a_wording_is_news_once() {
        let mut wordings = Wordings::default();
        assert_eq!(wordings.note("odd block 1"), News::New("odd block #".into()));
        assert_eq!(wordings.note("odd block 22"), News::Known);
        assert_eq!(wordings.note("odd hash"), News::New("odd hash".into()));
    }

    #[test]
    fn only_so_many_wordings_are_remembered() {
        let mut wordings = Wordings::default();
        let word = |n: usize| "x".repeat(1 + n % 19) + &"y".repeat(n / 19);
        for n in 0..REMEMBERED {
            assert!(matches!(wordings.note(&format!("{} {n}", word(n))), News::New(_)), "{n}");
        }
        assert_eq!(wordings.note("one more"), News::Full);
        assert_eq!(wordings.note(&format!("{} 3", word(3))), News::Known);
    }

    proptest! {
        #[test]
        fn whatever_a_node_writes_is_short_and_has_no_control_characters(message in ".{0,2000}") {
            let wording = wording(&message);
            prop_assert!(wording.len() <= KEPT);
            prop_assert!(!wording.chars().any(char::is_control), "{wording:?}");
            prop_assert!(!wording.contains("://"));
        }
    }
}
