//! The table as such, and the rows of operators.

use super::*;
use crate::failure::{Class, RefusalKind, Row, classify::By, reply::Seen, revert};

#[test]
fn each_row_is_the_first_to_match_its_own_example() {
    let mut shadowed = Vec::new();
    for entry in entries() {
        let seen = Seen::new(&reply_of(&entry.example)).expect("an example is no result");
        let bytes = seen.data.as_ref().and_then(revert::in_data);
        match Classifier::default().find(&seen, bytes.as_ref()).map(|found| found.by) {
            Some(By::BuiltIn(by)) if std::ptr::eq(by, entry) => {}
            Some(By::BuiltIn(by)) => {
                shadowed.push(format!("{entry:?}\n    by {:?} {:?}", by.class, by.contains))
            }
            Some(By::Operator(_)) | None => shadowed.push(format!("{entry:?}\n    by nothing")),
        }
    }
    assert!(shadowed.is_empty(), "these are not the first to match:\n{}", shadowed.join("\n"));
}

#[test]
fn each_row_has_its_evidence() {
    assert!(entries().count() > 250, "the table lost rows");
    for entry in entries() {
        let what = entry.contains;
        assert!(!entry.client.is_empty() && !entry.source.is_empty(), "{what:?}");
        assert!(
            what.iter().all(|pattern| pattern.len() >= 4 && *pattern == pattern.to_ascii_lowercase()),
            "{what:?}"
        );
        assert!(entry.codes.is_empty() || entry.example.code.is_some_and(|code| entry.codes.contains(&code)));
    }
}

#[test]
fn no_row_is_there_twice() {
    let rows: Vec<_> = entries().filter(|entry| !entry.contains.is_empty()).collect();
    for (i, row) in rows.iter().enumerate() {
        let twin = rows[..i].iter().find(|other| {
            other.contains == row.contains && other.methods == row.methods && other.codes == row.codes
        });
        assert!(twin.is_none(), "{:?}", row.contains);
    }
}

#[test]
fn the_same_body_gets_the_same_verdict_under_any_status() {
    for entry in entries().filter(|entry| entry.status.is_empty() && entry.example.code.is_some()) {
        let plain = verdict(&Reply { status: None, ..reply_of(&entry.example) });
        for status in [200, 400, 401, 403, 404, 429, 500, 502, 503, 504] {
            let reply = Reply { status: Some(status), ..reply_of(&entry.example) };
            assert_eq!(verdict(&reply), plain, "{:?} under {status}", entry.contains);
        }
    }
}

#[test]
fn letter_case_does_not_matter() {
    for entry in entries().filter(|entry| entry.example.code.is_some() && entry.example.data.is_none()) {
        let shouted = entry.example.message.to_ascii_uppercase();
        let reply = reply_of(&entry.example);
        let loud = Reply {
            content: Content::Error(RpcError {
                code: entry.example.code.expect("filtered"),
                message: &shouted,
                data: None,
            }),
            ..reply
        };
        assert_eq!(verdict(&loud).label(), verdict(&reply).label(), "{shouted}");
    }
}

#[test]
fn an_operators_row_comes_first() {
    let row: Row = serde_json::from_str(
        r#"{"class":{"tx_refused":"policy"},"contains":["Firewall","rule"],"methods":["eth_sendRaw*"],
            "example":"rejected by the FIREWALL: rule 7"}"#,
    )
    .expect("it is a row");
    let classifier = Classifier::with_rows(vec![row]).expect("it is a good row");
    let check = |method, message, expect| {
        assert_eq!(classifier.classify(&error(method, -32000, message)), expect, "{message}");
    };
    check(SEND, "Firewall rule 9: nonce too low", Verdict::TxRefused(RefusalKind::Policy));
    check(SEND, "Firewall: nonce too low", Verdict::TxRefused(RefusalKind::NonceTooLow));
    check("eth_call", "Firewall rule 9", Verdict::Unclassified);
    assert_eq!(classifier.explain(&error(SEND, 1, "firewall rule")).as_deref(), Some("operator row 1"));
    let known = classifier.explain(&error("eth_call", 1, "header not found")).expect("it is known");
    assert!(known.contains("\"header not found\"") && known.contains("geth"), "{known}");
}

#[test]
fn an_operators_row_may_go_by_code_or_status_alone() {
    let by_code = Row { contains: Vec::new(), codes: vec![-39_001], ..Row::new(Class::Unsupported, "") };
    let by_status = Row { contains: Vec::new(), status: vec![418], ..Row::new(Class::RateLimited, "") };
    let classifier = Classifier::with_rows(vec![by_code, by_status]).expect("they are good rows");
    assert_eq!(classifier.classify(&error("eth_call", -39_001, "no")), Verdict::Unsupported);
    assert_eq!(classifier.classify(&text(418, "I'm a teapot")), LIMITED);
}

#[test]
fn a_row_that_matches_everything_is_refused() {
    let check = |row: Row, expect: &str| {
        let good = Row::new(Class::Invalid, "a good one");
        let error = Classifier::with_rows(vec![good, row]).expect_err("it is a bad row").to_string();
        assert!(error.starts_with("classifier row 2: ") && error.contains(expect), "{error}");
    };
    let new = |pattern| Row::new(Class::Invalid, pattern);
    check(new(""), "almost everything");
    check(new("   "), "almost everything");
    check(new("e"), "almost everything");
    check(new("..."), "almost everything");
    check(Row { contains: vec![], ..new("") }, "every error");
    check(Row { contains: vec![], methods: vec!["eth_call".into()], ..new("") }, "every error");
    check(Row { contains: vec![], status: vec![200], ..new("") }, "every error");
    check(Row { status: vec![20], ..new("limit") }, "no HTTP status");
    check(Row { methods: vec![" ".into()], ..new("limit") }, "method is empty");
    check(Row { example: Some("quota".into()), ..new("limit") }, "does not contain \"limit\"");
}

#[test]
fn a_row_of_unknown_fields_or_classes_is_no_row() {
    for raw in [
        r#"{"class":"invalid","pattern":"x"}"#,
        r#"{"class":"wrong","contains":"abc"}"#,
        r#"{"contains":"abc"}"#,
    ] {
        assert!(serde_json::from_str::<Row>(raw).is_err(), "{raw}");
    }
    let row: Row =
        serde_json::from_str(r#"{"class":"rate_limited","contains":"one text"}"#).expect("one text will do");
    assert_eq!(row, Row::new(Class::RateLimited, "one text"));
}
