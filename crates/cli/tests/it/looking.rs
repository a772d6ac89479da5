//! `list`, `show` and `prune`, on journals that a service has open.

use backstay::{
    Outcome, RefusalKind,
    alloy::primitives::Bytes,
    journal::{Journal, PostgresJournal, Record, StepId},
};
use backstay_testkit::Postgres;
use expect_test::expect;

use crate::stage::{
    ACCOUNT, CHAIN, Said, Service, Succeeded, command, finished, inclusion, long_story, new, run,
    same_each_time, signed, stop,
};

#[tokio::test]
async fn the_timeline_tells_every_record_and_what_is_due() {
    let service = Service::new().await;
    service.intent(CHAIN, "register:a", &long_story()).await;
    let said = service.run(&["show", "register:a"]).done();
    assert!(!said.contains('\u{1b}'), "a diagnosis commands the terminal");
    expect![[r#"
        key register:a
        chain 1
        account 0x…
        state due, changed ago
        what call of 0x… with 0x… and 4 more bytes, sending 5 wei
        restarts 1

        # AT SINCE WHAT
        1 TIME opened: call of 0x… with 0x… and 4 more bytes, sending 5 wei, signed by 0x…
        2 TIME granted: recovery may approve at most 1000 of token 0x… for 0x…
        3 TIME fenced: from here on nothing is believed below block 5 (0x…)
        4 TIME planned: approve, by the flow `allowance`, which saw: the allowance is 0, and \u{1b}[31m1000 is needed
        5 TIME signed `approve` of round 1 at nonce 0: 0x…
        6 TIME submitted `approve` of round 1: refused by every endpoint that it went to: insufficient funds
        7 TIME released nonce 0: what was signed for it was refused for good, and no endpoint keeps it
        8 TIME stopped: the account cannot pay: it has 0 wei, and needs 1000 (nothing was sent; asking again later can help)
        9 TIME requested: a caller asked for it again, so it is due
        10 TIME signed `approve` of round 1 at nonce 1: 0x…
        11 TIME submitted `approve` of round 1: no clear answer: it may have been taken
        12 TIME resumed: another run took it up; whatever was signed before counts as sent
        13 TIME submitted `approve` of round 1: taken by an endpoint
        14 TIME included `approve` of round 1 in block 7 (0x…): it took effect, for 46000 gas; the receipt is from `own-node`
        15 TIME checked `approve` of round 1 at block 8 (0x…): what it was for is so
        16 TIME signed the intent's own call at nonce 2: 0x…
        17 TIME displaced: another transaction, 0x…, used nonce 2 in block 9
        18 TIME abandoned: the plan was given up: the approval was taken back
        19 TIME granted: nothing, and what was granted before is taken back
        20 TIME signed the intent's own call at nonce 3: 0x…
        21 TIME submitted the intent's own call: no byte of it left

        Next: find out whether the intent's own call is in a block (nonce 3, 0x…), and send the same bytes until it is.
        The account is held by the service, which must say within that it is alive.
        It goes on where a service with its account runs. Where none does: `backstay journal resume register:a --config FILE`.
    "#]].assert_eq(&same_each_time(&said));
}

#[tokio::test]
async fn the_timeline_in_json_has_the_parts_of_each_record() {
    let service = Service::new().await;
    service.intent(CHAIN, "register:a", &long_story()).await;
    let said = service.run(&["show", "register:a", "--json"]).json();
    for field in ["key", "chain_id", "account", "state", "call", "grants", "restarts", "next", "goes_on"] {
        assert!(!said[field].is_null(), "{field}");
    }
    assert_eq!(said["held_by"]["owner"], "the service");
    assert!(said["held_by"]["remaining_ms"].as_u64().is_some_and(|remaining| remaining <= 60_000), "{said}");
    for field in ["stopped", "outcome", "tombstone", "problem"] {
        assert!(said[field].is_null(), "{field}");
    }
    assert_eq!((said["state"].as_str(), said["restarts"].as_u64()), (Some("due"), Some(1)));
    assert_eq!(said["next"]["duty"], "settle");
    assert_eq!(said["next"]["nonce"], 3);
    let timeline = said["timeline"].as_array().expect("it is an array");
    let whats: Vec<&str> = timeline.iter().filter_map(|line| line["what"].as_str()).collect();
    let expected = [
        "opened",
        "granted",
        "fenced",
        "planned",
        "signed",
        "submitted",
        "released",
        "stopped",
        "requested",
        "signed",
        "submitted",
        "resumed",
        "submitted",
        "included",
        "checked",
        "signed",
        "displaced",
        "abandoned",
        "granted",
        "signed",
        "submitted",
    ];
    assert_eq!(whats, expected);
    assert!(
        timeline.iter().zip(1..).all(|(line, number)| line["record"] == number && !line["words"].is_null())
    );
    let signed = &timeline[4];
    assert_eq!((signed["step"].as_str(), signed["round"].as_u64()), (Some("plan"), Some(1)));
    assert_eq!(
        (signed["label"].as_str(), signed["max_fee_per_gas"].as_str()),
        (Some("approve"), Some("2000000000"))
    );
    assert_eq!(timeline[5]["answer"], "refused");
    assert_eq!(timeline[5]["refusal"], "insufficient funds");
    assert_eq!(timeline[1]["grants"][0]["cap"], "1000");
    assert_eq!(timeline[13]["inclusion"]["block"]["number"], 7);
    let times: Vec<&str> = timeline.iter().filter_map(|line| line["at"].as_str()).collect();
    assert!(
        times.len() == expected.len() && times.iter().all(|at| at.len() == 24 && at.ends_with('Z')),
        "{times:?}"
    );
    let bytes: String = "the signed bytes".bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(!said.to_string().contains(&bytes), "whoever reads it could send what was signed");
}

#[tokio::test]
async fn what_has_stopped_says_why_and_what_to_do() {
    let service = Service::new().await;
    service.intent(CHAIN, "it's broke", &[stop("the account cannot pay")]).await;
    let said = service.run(&["show", "it's broke"]).done();
    expect![[r#"
        key it's broke
        chain 1
        account 0x…
        state stopped, changed ago
        what call of 0x… with 0x… and 4 more bytes, sending 5 wei

        # AT SINCE WHAT
        1 TIME opened: call of 0x… with 0x… and 4 more bytes, sending 5 wei, signed by 0x…
        2 TIME stopped: the account cannot pay (nothing was sent; asking again later can help)

        Stopped: the account cannot pay
        On chain: nothing was sent.
        Again: asking again later can help.
        Where it goes on: simulate, price and sign the intent's own call: nothing of it is out.
        The account is held by the service, which must say within that it is alive.
        It does not go on by itself: send it again under its key, or run `backstay journal resume 'it'\''s broke' --config FILE`.
    "#]].assert_eq(&same_each_time(&said));
    let said = service.run(&["show", "it's broke", "--json"]).json();
    assert_eq!(said["stopped"]["why"], "the account cannot pay");
    assert_eq!(
        (said["stopped"]["retry"].as_str(), said["stopped"]["delivery"].as_str()),
        (Some("later"), Some("not_sent"))
    );
    assert_eq!(said["goes_on"], false);

    service.intent(CHAIN, "half", &[signed(StepId::Effect, 0), stop("no receipt for 10m")]).await;
    let said = service.run(&["show", "half"]).done();
    assert!(said.contains("it goes on when a service with its account starts"), "{said}");
    assert!(said.contains("backstay journal resume half --config FILE"), "{said}");
}

#[tokio::test]
async fn the_ends_of_intents_are_told() {
    let service = Service::new().await;
    let reverted =
        Outcome::Reverted { inclusion: inclusion(1, Succeeded::No), corroborated: false, data: Bytes::new() };
    let ends = [
        ("well", finished(0), "took effect in block 7"),
        ("reverted", Record::Finished { outcome: reverted }, "and reverted"),
        (
            "refused",
            Record::Finished { outcome: Outcome::Refused { kind: RefusalKind::IntrinsicGas } },
            "every endpoint refused it: intrinsic gas too low",
        ),
    ];
    for (key, end, words) in ends {
        service.intent(CHAIN, key, &[end]).await;
        let said = service.run(&["show", key]).done();
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("Next:"), "{said}");
    }
    let listed = service.run(&["list", "--state", "finished", "--json"]).json();
    let hows: Vec<_> =
        listed.as_array().into_iter().flatten().map(|intent| &intent["outcome"]["how"]).collect();
    assert_eq!(hows, ["included", "reverted", "refused"]);
}

#[tokio::test]
async fn intents_that_have_not_ended_are_listed_and_others_where_asked_for() {
    let service = Service::new().await;
    service.intent(CHAIN, "due", &[]).await;
    service.intent(CHAIN, "stopped", &[stop("the account cannot pay")]).await;
    service.intent(CHAIN, "finished", &[finished(0)]).await;
    service.intent(2, "there", &[]).await;
    let said = service.run(&["list"]).done();
    expect![[r#"
        KEY STATE CHAIN ACCOUNT OPENED CHANGED NEXT, OR WHY NOT
        due due 1 0xaAaA…aaAa TIME ago simulate, price and sign the intent's own call: nothing of it is out
        stopped stopped 1 0xaAaA…aaAa TIME ago the account cannot pay
        there due 2 0xaAaA…aaAa TIME ago simulate, price and sign the intent's own call: nothing of it is out

        `backstay journal show KEY` tells what happened to one.
    "#]]
    .assert_eq(&same_each_time(&said));

    let keys = |arguments: &[&str]| {
        let listed = service.run(&[&["list", "--json"], arguments].concat()).json();
        let keys = listed.as_array().expect("it is an array").iter().map(|intent| intent["key"].as_str());
        keys.map(|key| key.expect("it has a key").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["due", "stopped", "there"]);
    assert_eq!(keys(&["--chain", "2"]), ["there"]);
    assert_eq!(keys(&["--state", "stopped"]), ["stopped"]);
    assert_eq!(keys(&["--state", "finished", "--state", "due", "--chain", "1"]), ["due", "finished"]);
    assert_eq!(keys(&["--state", "all"]), ["due", "stopped", "finished", "there"]);
    assert_eq!(keys(&["--limit", "1"]), ["due"]);
    assert_eq!(keys(&["--account", &ACCOUNT.to_string()]).len(), 3);
    assert_eq!(keys(&["--account", "0x0000000000000000000000000000000000000001"]).len(), 0);
    let said = service.run(&["list", "--limit", "2"]).done();
    assert!(said.contains("There are more than these 2"), "{said}");
    assert_eq!(service.run(&["list", "--state", "pruned"]).done(), "No intent is pruned.\n");

    let listed = service.run(&["list", "--json", "--state", "stopped"]).json();
    assert_eq!(listed[0]["stopped"]["why"], "the account cannot pay");
    assert_eq!(listed[0]["next"]["duty"], "prepare");
    assert_eq!((listed[0]["chain_id"].as_u64(), listed[0]["records"].as_u64()), (Some(1), Some(2)));
    assert_eq!(listed[0]["account"], ACCOUNT.to_string().to_lowercase());
}

#[tokio::test]
async fn more_intents_than_a_page_are_listed() {
    let service = Service::new().await;
    for number in 0..1_003 {
        service.journal.open(new(CHAIN, &format!("pay:{number}"))).await.expect("it is opened");
    }
    let listed = service.run(&["list", "--json", "--limit", "1002"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1_002));
    assert_eq!(listed[1_001]["key"], "pay:1001");
}

#[tokio::test]
async fn what_ended_long_ago_is_counted_then_pruned_and_its_outcome_stays() {
    let service = Service::new().await;
    service.intent(CHAIN, "finished", &[signed(StepId::Effect, 0), finished(0)]).await;
    service.intent(CHAIN, "stopped", &[stop("the account cannot pay")]).await;
    service.intent(CHAIN, "half", &[signed(StepId::Effect, 1), stop("no receipt")]).await;
    service.intent(CHAIN, "due", &[]).await;
    service.intent(2, "there", &[finished(0)]).await;

    let prune = |arguments: &[&str]| service.run(&[&["prune"], arguments].concat());
    assert_eq!(prune(&["--older-than", "1h"]).done(), "0 intents were pruned.\n");
    assert_eq!(prune(&["--older-than", "0s", "--dry-run"]).done(), "3 intents would be pruned.\n");
    assert_eq!(prune(&["--older-than", "0s", "--chain", "2"]).done(), "1 intent was pruned.\n");
    let said = prune(&["--older-than", "0s", "--json"]).json();
    assert_eq!(said, serde_json::json!({ "pruned": 2, "dry_run": false, "chains": [1] }));

    let said = service.run(&["show", "finished"]).done();
    expect![[r#"
        key finished
        chain 1
        account 0x…
        state pruned

        It ended long ago, and its records were pruned. The key keeps its meaning.
        Outcome: 0x… took effect in block 7 (0x…); a second endpoint shows the block
        Signed for it: 0x…
    "#]]
    .assert_eq(&same_each_time(&said));
    let said = service.run(&["show", "finished", "--json"]).json();
    assert_eq!((said["state"].as_str(), &said["outcome"]["how"]), (Some("pruned"), &"included".into()));
    assert_eq!(said["tombstone"]["hashes"].as_array().map(Vec::len), Some(1));
    let said = service.run(&["list", "--state", "all"]).done();
    let pruned = said.lines().filter(|line| line.contains(" pruned ")).count();
    assert_eq!((pruned, said.contains("stopped ")), (2, true), "{said}");
    assert!(service.journal.load(CHAIN, "stopped").await.expect("it is read").is_none());
    assert!(service.journal.load(CHAIN, "half").await.expect("it is read").is_some());
}

#[tokio::test]
async fn a_journal_in_postgresql_is_looked_into_and_its_password_is_not_shown() {
    let server = Postgres::shared().await.expect("the server starts");
    let url = server.database().await.expect("there is room").to_string();
    let look = |arguments: &[&str]| {
        let mut command = command(arguments);
        let said = Said::of(command.env("BACKSTAY_JOURNAL", &url).output().expect("it starts"));
        for said in [&said.out, &said.err] {
            assert!(!said.contains(server.password()) && !said.contains("postgres://"), "{said}");
        }
        said
    };
    let said = look(&["list"]).failed();
    assert!(said.contains("does not exist"), "{said}");

    let journal = PostgresJournal::open(&url).await.expect("it is created");
    journal.open(new(CHAIN, "register:a")).await.expect("it is opened");
    assert!(look(&["list"]).done().contains("register:a"));
    assert!(look(&["show", "register:a"]).done().contains("simulate, price and sign the intent's own call"));
    assert_eq!(look(&["prune", "--older-than", "1h"]).done(), "0 intents were pruned.\n");
}

#[tokio::test]
async fn the_journal_is_named_by_argument_then_configuration_then_environment() {
    let [argued, configured, of_environment] =
        [Service::new().await, Service::new().await, Service::new().await];
    argued.intent(CHAIN, "argued", &[]).await;
    configured.intent(CHAIN, "configured", &[]).await;
    configured.intent(2, "elsewhere", &[]).await;
    of_environment.intent(CHAIN, "of environment", &[]).await;
    let config = configured.folder().join("service.toml");
    let endpoint = "[[endpoints]]\nname = \"node\"\nurl = \"http://127.0.0.1:1\"\n";
    let text = format!("chain_id = 1\njournal = {:?}\n{endpoint}", configured.path());
    std::fs::write(&config, text).expect("it is written");
    let bare = configured.folder().join("bare.toml");
    std::fs::write(&bare, format!("chain_id = 1\n{endpoint}")).expect("it is written");

    let listed = |arguments: &[&str]| {
        let mut command = command(&[&["list", "--json"], arguments].concat());
        command.env("BACKSTAY_JOURNAL", of_environment.path());
        let listed = Said::of(command.output().expect("it starts")).json();
        let keys = listed.as_array().expect("it is an array").iter().map(|intent| intent["key"].to_string());
        keys.collect::<Vec<_>>().join(" ")
    };
    let (config, bare) = (config.to_str().expect("text"), bare.to_str().expect("text"));
    assert_eq!(listed(&["--config", config, "--journal", argued.path()]), "\"argued\"");
    // The configuration says which chain, too.
    assert_eq!(listed(&["--config", config]), "\"configured\"");
    assert_eq!(listed(&["--config", config, "--chain", "2"]), "\"elsewhere\"");
    assert_eq!(listed(&["--config", bare]), "\"of environment\"");
    assert_eq!(listed(&[]), "\"of environment\"");
    let said = run(&["list"]).failed();
    assert!(said.contains("--journal") && said.contains("BACKSTAY_JOURNAL"), "{said}");
}
