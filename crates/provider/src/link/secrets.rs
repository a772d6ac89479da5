//! What a node may not tell of the way to it: some put the URL that they were asked at, key included, into their
//! errors (E11).

use alloy::{
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
    transports::Authorization,
};
use backstay_core::failure::Verdict;
use serde_json::value::RawValue;
use url::Url;

use crate::{config::EndpointConfig, link::wire::Reply};

/// Shorter parts of a path or header are words, such as `v1` or `mainnet`.
const SHORTEST: usize = 8;

/// Longer texts of a node are cut, perhaps within a key. That of an error is cut nowhere shorter.
const CUT: usize = 4096;

/// The parts of an endpoint's URL and headers that may be keys. They are never shown.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn new(config: &EndpointConfig, url: &Url) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut all: Vec<String> = url.path_segments().into_iter().flatten().map(str::to_owned).collect();
        all.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        // As they were written, too.
        let written = url.query().unwrap_or_default().split(['&', '=']);
        all.extend(written.map(str::to_owned));
        all.extend(config.headers.values().flat_map(|value| words(value)));
        all.retain(|part| part.len() >= SHORTEST);
        // These are keys whatever their length; an empty one is in every text.
        all.extend([url.username(), url.password().unwrap_or_default()].map(str::to_owned));
        // The two as they are sent.
        let authorization = Authorization::extract_from_url(url).map(|sent| sent.to_string());
        all.extend(authorization.as_deref().map(words).into_iter().flatten().filter(|part| part != "Basic"));
        all.retain(|part| !part.is_empty());
        // The longer ones first: one may be part of another.
        all.sort_by_key(|part| std::cmp::Reverse(part.len()));
        Self(all)
    }

    /// Takes them out of what a node said in an error.
    pub(crate) fn hush(&self, reply: &mut Reply) {
        if let Some(ResponsePayload::Failure(ErrorPayload { message, data, .. })) = &mut reply.payload {
            if let Some(quiet) = self.without(message) {
                *message = quiet.into();
            }
            let quiet = data.as_ref().and_then(|data| RawValue::from_string(self.without(data.get())?).ok());
            if let Some(quiet) = quiet {
                *data = Some(quiet);
            }
        }
        if let Verdict::Reverted(revert) = &mut reply.verdict
            && let Some(quiet) = self.without(&revert.message)
        {
            revert.message = quiet;
        }
    }

    /// The text without them; `None` where there is none in it.
    fn without(&self, text: &str) -> Option<String> {
        let whole = self.whole_of(text);
        let mut found = self.0.iter().filter(|secret| whole.contains(secret.as_str())).peekable();
        if found.peek().is_none() && whole.len() == text.len() {
            return None;
        }
        let mut quiet = found.fold(whole.to_owned(), |text, secret| text.replace(secret.as_str(), "…"));
        if whole.len() < text.len() {
            quiet.push('…');
        }
        Some(quiet)
    }

    /// The text up to a key within which it was cut.
    fn whole_of<'a>(&self, text: &'a str) -> &'a str {
        let end = text.trim_end_matches('…');
        // A character of the last place may be gone too.
        if end.len() < CUT - char::MAX.len_utf8() {
            return text;
        }
        let begun = |secret: &String| {
            let begins = secret.char_indices().map(|(at, _)| &secret[..at]).filter(|begin| begin.len() >= 3);
            begins.rev().find(|begin| end.ends_with(begin)).map(str::len)
        };
        match self.0.iter().filter_map(begun).max() {
            Some(part) => &end[..end.len() - part],
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use backstay_core::failure::Revert;

    use super::*;

    #[test]
    fn a_node_that_echoes_its_url_and_headers_tells_nobody_the_keys() {
        let url = "https://hush-user:hush@rpc.example/v2/mainnet/hush-path/?apikey=hush%20query&x=1";
        let mut config = EndpointConfig::new("a", url);
        config.headers.insert("authorization".into(), "Bearer hush-token".into());
        let secrets = Secrets::new(&config, &Url::parse(url).expect("it is a url"));
        let error = format!("{{\"at\":\"{url}\",\"data\":\"0x1234\"}}");
        let mut reply = Reply {
            verdict: Verdict::Reverted(Revert { message: format!("no, {url}"), ..Revert::default() }),
            payload: Some(ResponsePayload::Failure(ErrorPayload {
                code: 1,
                message: format!("mainnet said no to hush query at {url} with Bearer hush-token").into(),
                data: RawValue::from_string(error).ok(),
            })),
        };
        secrets.hush(&mut reply);
        let shown = format!("{reply:?}");
        assert!(
            !shown.contains("hush-") && !shown.contains("hush@") && !shown.contains("hush query"),
            "{shown}"
        );
        assert!(!shown.contains("hush%20query"), "{shown}");
        assert!(shown.contains("mainnet said no") && shown.contains("0x1234"), "{shown}");
    }

    #[test]
    fn a_text_that_was_cut_within_a_key_does_not_tell_its_beginning() {
        let url = "https://user:word@rpc.example/v2/0123456789abcdef";
        let secrets = Secrets::new(&EndpointConfig::new("a", url), &Url::parse(url).expect("it is a url"));
        for known in 3..16 {
            let key = &"0123456789abcdef"[..known];
            let text = format!("{}{key}", "x".repeat(CUT - known));
            for text in [format!("{text}…"), text] {
                let quiet = secrets.without(&text).expect("it is in there");
                assert!(quiet.ends_with("x…") && !quiet.contains("012"), "{known}: {quiet}");
            }
        }
        let ends_alike = "x012";
        assert_eq!(secrets.without(ends_alike), None);
    }

    #[test]
    fn user_and_password_are_hidden_as_they_are_sent_too() {
        let url = "https://hush-user:hush-word@rpc.example/";
        let secrets = Secrets::new(&EndpointConfig::new("a", url), &Url::parse(url).expect("it is a url"));
        let quiet = secrets.without("you sent Basic aHVzaC11c2VyOmh1c2gtd29yZA== and it is no key");
        assert_eq!(quiet.as_deref(), Some("you sent Basic … and it is no key"));
    }

    #[test]
    fn without_keys_nothing_is_taken_out() {
        let url = Url::parse("http://127.0.0.1:8545/").expect("it is a url");
        let secrets = Secrets::new(&EndpointConfig::new("a", url.as_str()), &url);
        assert_eq!(secrets.without("anything at http://127.0.0.1:8545/"), None);
    }
}
