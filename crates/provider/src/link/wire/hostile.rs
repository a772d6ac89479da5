//! Whatever bytes come back: no panic, a verdict for every call, and no answer that is another's.

use proptest::prelude::*;

use super::*;

const METHODS: [&str; 4] = ["eth_call", "eth_getLogs", "eth_sendRawTransaction", "eth_blockNumber"];

fn calls(count: u64) -> Vec<Call> {
    (1..=count).map(|id| Call::new(Id::Number(id), METHODS[id as usize % METHODS.len()], "[]")).collect()
}

fn check(count: u64, body: &[u8], status: Option<u16>) {
    let calls = calls(count);
    let calls: Vec<&Call> = calls.iter().collect();
    let http = HttpReply { status, retry_after: None, body: Bytes::copy_from_slice(body), sent: true };
    let replies = read(&calls, &http, &Classifier::default());
    assert_eq!(replies.len(), calls.len());
    for (call, reply) in calls.iter().zip(&replies) {
        match &reply.payload {
            Some(ResponsePayload::Success(result)) => {
                assert!(result.get().len() <= body.len());
                let (Id::Number(id), text) = (&call.id, String::from_utf8_lossy(body)) else {
                    unreachable!()
                };
                assert!(text.contains(&id.to_string()), "{text} is an answer to {id}");
            }
            Some(ResponsePayload::Failure(error)) => assert!(error.message.len() <= LONGEST_MESSAGE + 3),
            None => assert_ne!(reply.verdict, Verdict::Answer, "there is no answer"),
        }
    }
}

/// JSON-RPC ids as an endpoint may give them.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..6_u64).prop_map(|id| id.to_string()),
        (0..6_u64).prop_map(|id| format!("\"{id}\"")),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1.0".to_owned()),
        Just("-1".to_owned()),
        Just("1e999999".to_owned()),
        Just("99999999999999999999999999".to_owned()),
        Just("[1]".to_owned()),
        Just("{\"id\":1}".to_owned()),
    ]
}

/// An element of a reply: fields in any order and number.
fn element() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        id().prop_map(|id| format!("\"id\":{id}")),
        id().prop_map(|id| format!("\"result\":{id}")),
        (id(), id(), ".{0,30}").prop_map(|(code, data, message)| {
            let message = serde_json::Value::from(message);
            format!("\"error\":{{\"code\":{code},\"message\":{message},\"data\":{data}}}")
        }),
        id().prop_map(|error| format!("\"error\":{error}")),
        Just("\"jsonrpc\":\"2.0\"".to_owned()),
        Just("\"error\":{\"code\":1e400,\"message\":7}".to_owned()),
    ];
    prop::collection::vec(field, 0..6).prop_map(|fields| format!("{{{}}}", fields.join(",")))
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let batch =
        prop::collection::vec(element(), 0..6).prop_map(|elements| format!("[{}]", elements.join(",")));
    let valid = prop_oneof![element(), batch].prop_map(String::into_bytes).boxed();
    let hurt = (
        valid.clone(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut bytes, changes, cut)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let end = cut.index(bytes.len() * 2).min(bytes.len());
            bytes.truncate(end);
            bytes
        });
    prop_oneof![valid, hurt, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn whatever_comes_back_every_call_gets_a_verdict(
        count in 1..5_u64,
        body in body(),
        status in prop::option::of(100..600_u16),
    ) {
        check(count, &body, status);
    }
}

#[test]
fn a_hundred_thousand_levels_are_read_and_refused_wherever_they_are() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for body in [
            deep.clone(),
            open.repeat(100_000),
            format!("{{\"id\":{deep}}}"),
            format!("{{\"id\":1,\"result\":{deep}}}"),
            format!("{{\"id\":1,\"error\":{deep}}}"),
            format!("{{\"id\":1,\"error\":{{\"code\":{deep},\"message\":\"odd\"}}}}"),
            format!("{{\"id\":1,\"error\":{{\"code\":1,\"message\":{deep},\"data\":{deep}}}}}"),
            format!("{{\"id\":1,\"error\":{{\"code\":1,\"message\":\"odd\",\"data\":{deep}}}}}"),
            format!("[{{\"id\":1,\"result\":{deep}}},{{\"id\":{deep},\"error\":{deep}}}]"),
        ] {
            for count in [1, 3] {
                check(count, body.as_bytes(), Some(200));
            }
        }
    }
}

#[test]
fn a_batch_with_missing_double_and_foreign_elements_answers_what_it_answers() {
    let calls = calls(3);
    let calls: Vec<&Call> = calls.iter().collect();
    let body = br#"[{"id":3,"result":"c"},{"id":9,"result":"z"},{"id":"1","result":"x"},{"id":3,"result":"d"},7,null]"#;
    let http = HttpReply { status: Some(200), retry_after: None, body: Bytes::from_static(body), sent: true };
    let labels = |replies: Vec<Reply>| replies.iter().map(|reply| reply.verdict.label()).collect::<Vec<_>>();
    // What is no object makes it no array of replies.
    assert_eq!(labels(read(&calls, &http, &Classifier::default())), ["not json"; 3]);
    let body =
        br#"[{"id":3,"result":"c"},{"id":9,"result":"z"},{"id":"1","result":"x"},{"id":3,"result":"d"}]"#;
    let http = HttpReply { body: Bytes::from_static(body), ..http };
    assert_eq!(
        labels(read(
            &calls,
            &HttpReply { body: Bytes::from_static(b"[[1,\"x\"]]"), ..http.clone() },
            &Classifier::default()
        )),
        ["not json"; 3]
    );
    // Two different answers to one call are none.
    assert_eq!(labels(read(&calls, &http, &Classifier::default())), ["wrong id"; 3]);
    let body =
        br#"[{"id":3,"result":"c"},{"id":9,"result":"z"},{"id":2,"result":"d"},{"id":2,"result":"d"}]"#;
    let http = HttpReply { body: Bytes::from_static(body), ..http };
    assert_eq!(labels(read(&calls, &http, &Classifier::default())), ["wrong id", "answer", "answer"]);
}

#[test]
fn no_error_keeps_more_of_a_nodes_words_than_a_page() {
    let long = "é".repeat(1_000_000);
    for body in [
        format!("{{\"id\":1,\"error\":{{\"code\":1,\"message\":\"{long}\"}}}}"),
        format!("{{\"id\":1,\"error\":\"{long}\"}}"),
        format!("{{\"id\":1,\"error\":[\"{long}\"]}}"),
    ] {
        check(1, body.as_bytes(), Some(200));
    }
}
