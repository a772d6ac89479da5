//! What goes wrong is said on standard error, and leaves things as they are.

use std::fs;

use backstay::journal::{Journal, Record, SendAnswer, SqliteJournal};

use crate::stage::{CHAIN, Said, Service, command, finished, long_story, run};

#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

#[tokio::test]
async fn a_mistyped_path_creates_no_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("jurnal.db");
    let path = path.to_str().expect("it is text");
    for arguments in [&["list"][..], &["show", "a"], &["prune", "--older-than", "1h"]] {
        let said = run(&[arguments, &["--journal", path]].concat()).failed();
        says(&said, &["error: ", path, "does not exist"]);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    let said = run(&["list", "--journal", "/not/there/journal.db"]).failed();
    says(&said, &["/not/there/journal.db", "directory"]);
}

#[tokio::test]
async fn what_is_no_journal_of_this_version_is_said_and_left_as_it_is() {
    let folder = tempfile::tempdir().expect("there is room");
    let text = folder.path().join("notes.txt");
    fs::write(&text, "a note, not a journal\n").expect("it is written");
    let said = run(&["list", "--journal", text.to_str().expect("text")]).failed();
    says(&said, &["is not a Backstay journal", "notes.txt"]);
    assert_eq!(fs::read_to_string(&text).expect("it is there"), "a note, not a journal\n");
}

#[tokio::test]
async fn a_key_that_is_not_there_is_said() {
    let service = Service::new().await;
    service.intent(CHAIN, "register:a", &[]).await;
    says(
        &service.run(&["show", "register:b"]).failed(),
        &["no intent under the key `register:b`", "journal list"],
    );
    says(&service.run(&["show", "register:a", "--chain", "5"]).failed(), &["`register:a` on chain 5"]);
}

#[tokio::test]
async fn a_key_of_several_chains_needs_one() {
    let service = Service::new().await;
    for chain_id in [10, 8_453] {
        service.intent(chain_id, "register:a", &[]).await;
    }
    says(&service.run(&["show", "register:a"]).failed(), &["on the chains 10, 8453", "--chain"]);
    let said = service.run(&["show", "register:a", "--chain", "10"]).done();
    says(&said, &["chain     10"]);
}

#[tokio::test]
async fn one_damaged_intent_does_not_hide_the_others() {
    let service = Service::new().await;
    service.intent(CHAIN, "whole", &[]).await;
    let damaged = vec![
        long_story().remove(2),
        Record::Submitted { hash: Default::default(), answer: SendAnswer::Accepted },
    ];
    service.intent(CHAIN, "damaged", &damaged).await;
    let said = service.run(&["list"]).done();
    says(
        &said,
        &[
            "whole",
            "simulate, price and sign",
            "damaged: record 3 does not follow",
            "it submits what was never",
        ],
    );
    let said = service.run(&["show", "damaged"]);
    assert_eq!(said.code, 1);
    says(&said.out, &["opened: ", "planned: approve, by the flow `allowance`", "submitted 0x"]);
    says(&said.err, &["the journal is damaged: record 3"]);
}

#[tokio::test]
async fn a_wrong_command_line_is_another_exit_code() {
    for arguments in [
        &["list", "--state", "lost"][..],
        &["show"],
        &["prune"],
        &["prune", "--older-than", "30"],
        &["resume"],
        &["resume", "--config", "a.toml", "--keystore", "key.json"],
        &["list", "--account", "0x1"],
        &["forget"],
    ] {
        let said = run(arguments);
        assert_eq!((said.code, &*said.out), (2, ""), "{arguments:?}: {}", said.err);
        assert!(!said.err.is_empty());
    }
}

#[tokio::test]
async fn help_says_where_secrets_go() {
    let said = run(&["resume", "--help"]).done();
    says(&said, &["BACKSTAY_PRIVATE_KEY", "never from an argument", "exit code"]);
    let said = run(&["list", "--help"]).done();
    says(&said, &["BACKSTAY_JOURNAL", "shows in the list of processes"]);
}

#[tokio::test]
async fn a_configuration_is_named_and_nothing_of_it_is_quoted() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("service.toml");
    let shown = path.to_str().expect("it is text");
    says(&run(&["list", "--config", shown]).failed(), &[shown, "cannot be read"]);
    let wrong = "chain_id = 1\njournal = \"a.db\"\n[[endpoints]]\nname = \"a\"\nurl = \"https://a/KEY\"\nrole = \"KEY\"\n";
    fs::write(&path, wrong).expect("it is written");
    let said = run(&["list", "--config", shown]).failed();
    says(&said, &[shown, "endpoints[0].role"]);
    assert!(!said.contains("KEY"), "{said}");
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let service = Service::new().await;
    for number in 0..300 {
        service.intent(CHAIN, &format!("register:{number}"), &[]).await;
    }
    let mut listing = command(&["list", "--limit", "300", "--journal", service.path()]);
    listing.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut listing = listing.spawn().expect("it starts");
    drop(listing.stdout.take());
    let output = listing.wait_with_output().expect("it ends");
    let said = Said::of(output);
    assert_eq!((said.code, &*said.err), (0, ""));
}

#[tokio::test]
async fn looking_leaves_the_journal_to_its_service() {
    let service = Service::new().await;
    service.intent(CHAIN, "register:a", &[]).await;
    let other = SqliteJournal::open(&service.path).await.expect("it opens");
    drop(other);
    for _ in 0..3 {
        service.run(&["list"]).done();
        service.intent(CHAIN, "register:b", &[]).await;
        service.run(&["show", "register:b"]).done();
    }
    service.intent(CHAIN, "register:c", &[finished(0)]).await;
    assert!(service.journal.load(CHAIN, "register:c").await.expect("it is read").is_some());
}
