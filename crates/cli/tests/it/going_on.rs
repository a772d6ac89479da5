//! `resume`, over endpoints in front of a chain.

use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backstay::{
    Grant,
    alloy::{primitives::U256, signers::local::PrivateKeySigner, sol_types::SolCall},
    journal::{Content, Journal, NewIntent, SqliteJournal},
};
use backstay_testkit::{
    Action, Anvil, Fleet, Program, Rule,
    sample::{ContextGraphs, Deployment},
};
use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::stage::{Said, command, run, same_each_time};

const CHAIN: u64 = 31_337;
/// No command takes longer.
const SOON: Duration = Duration::from_secs(60);
/// A test vector of the Web3 Secret Storage Definition, version 3, with PBKDF2; the password is "testpassword".
const KEYSTORE: &str = r#"{"crypto": {"cipher": "aes-128-ctr", "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
"ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46", "kdf": "pbkdf2", "kdfparams": {"c": 262144,
"dklen": 32, "prf": "hmac-sha256", "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd"},
"mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2"}, "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
"version": 3}"#;
/// The key in it.
const KEY_IN_STORE: &str = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d";
const SEND: &str = "eth_sendRawTransaction";

/// A chain, two endpoints with a key in their URLs, and a journal with intents of one account.
struct Stage {
    chain: Anvil,
    fleet: Fleet,
    contracts: Deployment,
    signer: PrivateKeySigner,
    folder: TempDir,
}

impl Stage {
    async fn new(keys: &[&str]) -> Self {
        Self::of(PrivateKeySigner::random(), keys).await
    }

    async fn of(signer: PrivateKeySigner, keys: &[&str]) -> Self {
        let chain = Anvil::builder().launch().await.expect("anvil starts");
        let contracts = Deployment::deploy(&chain, U256::from(1_000)).await.expect("they deploy");
        contracts.fund(&chain, signer.address()).await.expect("it is funded");
        let fleet = Fleet::builder();
        let fleet = fleet.endpoint("primary", chain.url(), Program::new());
        let fleet = fleet.endpoint("second", chain.url(), Program::new()).start().await.expect("they start");
        let stage =
            Self { chain, fleet, contracts, signer, folder: tempfile::tempdir().expect("there is room") };
        stage.configure("6s");
        let journal = SqliteJournal::open(stage.journal()).await.expect("it is created");
        for key in keys {
            journal.open(stage.intent(key)).await.expect("it is opened");
        }
        journal.close().await.expect("it is closed");
        stage
    }

    fn intent(&self, key: &str) -> NewIntent {
        let input = ContextGraphs::createContextGraphCall { key: Deployment::key(key) }.abi_encode();
        let content = Content { to: self.contracts.graphs, value: U256::ZERO, input: input.into() };
        let Deployment { token, graphs: spender, deposit: cap, .. } = self.contracts;
        let grants = vec![Grant { token, spender, cap }];
        NewIntent { chain_id: CHAIN, key: key.to_owned(), account: self.signer.address(), content, grants }
    }

    fn configure(&self, ttl: &str) {
        let endpoints: String = self
            .fleet
            .urls()
            .iter()
            .map(|(name, url)| format!("[[endpoints]]\nname = {name:?}\nurl = \"{url}?key=hush\"\n"))
            .collect();
        let text = format!(
            "chain_id = {CHAIN}\njournal = {:?}\n{endpoints}\
             [provider]\nhead_poll = \"50ms\"\nattempt_timeout = \"2s\"\nhistory_probes = false\n\
             [provider.pool]\nblock_time = \"200ms\"\n\
             [claims]\nttl = \"{ttl}\"\npoll = \"50ms\"\n",
            self.journal(),
        );
        fs::write(self.config(), text).expect("it is written");
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("service.toml")
    }

    fn resume(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = command(&["resume", "--config"]);
        command.arg(self.config()).args(arguments).env("BACKSTAY_PRIVATE_KEY", self.secret());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        command
    }

    async fn resumed(&self, arguments: &[&str]) -> Said {
        let output = tokio::time::timeout(SOON, self.resume(arguments).output()).await;
        let said = Said::of(output.expect("it ends").expect("it starts"));
        for secret in [self.secret(), "hush".to_owned()] {
            assert!(!said.out.contains(&secret) && !said.err.contains(&secret), "{}{}", said.out, said.err);
        }
        said
    }

    fn look(&self, arguments: &[&str]) -> Said {
        run(&[arguments, &["--journal", self.journal().to_str().expect("it is text")]].concat())
    }

    fn secret(&self) -> String {
        format!("{:x}", self.signer.to_bytes())
    }

    async fn effects(&self) -> (u64, u64) {
        let account = self.signer.address();
        let approvals = self.contracts.approvals(&self.chain, account).await.expect("anvil answers");
        (approvals, self.contracts.registrations(&self.chain, account).await.expect("anvil answers"))
    }
}

#[tokio::test]
async fn an_intent_whose_process_was_killed_goes_on_and_its_timeline_shows_it() {
    let stage = Stage::new(&["register:a"]).await;
    stage.configure("500ms");
    // The approve is signed and on its way; the process is killed before the chain has it.
    let living: Arc<Mutex<Option<Pid>>> = Arc::default();
    let victim = living.clone();
    let kill = Rule::on(SEND).times(1).then(Action::DropBefore).before(move |_| {
        if let Some(pid) = victim.lock().unwrap_or_else(PoisonError::into_inner).take() {
            kill_process(pid, Signal::KILL).expect("it is ours");
        }
    });
    stage.fleet.endpoint("primary").set(Program::new().rule(kill));
    let child = stage.resume(&["register:a"]).spawn().expect("it starts");
    let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
    *living.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    let output = tokio::time::timeout(SOON, child.wait_with_output()).await.expect("it is killed");
    assert!(output.expect("it ran").status.code().is_none(), "it was killed");
    stage.fleet.endpoint("primary").heal();

    let said = stage.look(&["show", "register:a"]).done();
    assert!(said.contains("find out whether `approve` of round 1 is in a block (nonce 0, "), "{said}");
    assert!(!said.contains("submitted"), "{said}");

    let said = stage.resumed(&["register:a"]).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("register:a") && said.out.contains("took effect in block"), "{}", said.out);
    assert!(said.err.contains("register:a: resumed: ") && !said.err.contains("opened: "), "{}", said.err);
    assert_eq!(stage.effects().await, (1, 1));
    let said = stage.look(&["show", "register:a"]).done();
    expect![[r#"
        key register:a
        chain 31337
        account 0x…
        state finished, changed ago
        what call of 0x… with 0x… and 32 more bytes
        grant at most 1000 of token 0x… for 0x…
        restarts 1

        # AT SINCE WHAT
        1 TIME opened: call of 0x… with 0x… and 32 more bytes, signed by 0x…
        2 TIME granted: recovery may approve at most 1000 of token 0x… for 0x…
        3 TIME fenced: from here on nothing is believed below block 10 (0x…)
        4 TIME planned: approve, by the flow `allowance`, which saw: the allowance is too low, token 0x…, it is 0 and 1000 is needed
        5 TIME signed `approve` of round 1 at nonce 0: 0x…
        6 TIME resumed: another run took it up; whatever was signed before counts as sent
        7 TIME submitted `approve` of round 1: taken by an endpoint
        8 TIME included `approve` of round 1 in block 11 (0x…): it took effect, for 46318 gas; the receipt is from `primary`
        9 TIME checked `approve` of round 1 at block 11 (0x…): what it was for is so
        10 TIME signed the intent's own call at nonce 1: 0x…
        11 TIME submitted the intent's own call: taken by an endpoint
        12 TIME included the intent's own call in block 12 (0x…): it took effect, for 86127 gas; the receipt is from `primary`
        13 TIME finished: 0x… took effect in block 12 (0x…); a second endpoint shows the block

        Outcome: 0x… took effect in block 12 (0x…); a second endpoint shows the block
    "#]].assert_eq(&same_each_time(&said));

    // It has ended: asked again, it tells the same and sends nothing.
    let sent = stage.fleet.count("primary", SEND);
    let said = stage.resumed(&["register:a", "--json"]).await.json_despite_news();
    assert_eq!((&said[0]["ended"], &said[0]["outcome"]["how"]), (&true.into(), &"included".into()));
    assert_eq!(stage.fleet.count("primary", SEND), sent);
}

#[tokio::test]
async fn only_the_intents_that_are_named_go_on() {
    let stage = Stage::new(&["register:a", "register:b", "register:c"]).await;
    let said = stage.resumed(&["register:b", "register:b"]).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out.lines().filter(|line| line.contains("register:")).count(), 1, "{}", said.out);
    let open = stage.look(&["list", "--json"]).json();
    let open: Vec<_> = open.as_array().into_iter().flatten().map(|intent| &intent["key"]).collect();
    assert_eq!(open, ["register:a", "register:c"]);
    assert_eq!(stage.effects().await, (1, 1));

    let said = stage.resumed(&[]).await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(stage.effects().await, (3, 3));
    let said = stage.resumed(&[]).await;
    assert_eq!((said.code, &*said.out), (0, "Every intent of the account has ended.\n"));
}

#[tokio::test]
async fn what_does_not_end_in_time_or_stops_is_another_exit_code() {
    let stage = Stage::new(&["register:a"]).await;
    for name in ["primary", "second"] {
        let nothing = Rule::on("eth_getTransactionReceipt").then(Action::RpcResult(serde_json::Value::Null));
        stage.fleet.endpoint(name).set(Program::new().rule(nothing));
    }
    let said = stage.resumed(&["register:a", "--timeout", "2s"]).await;
    assert_eq!(said.code, 1);
    assert!(
        said.out.contains("it has not ended within 2s; nothing is lost; next: find out whether"),
        "{}",
        said.out
    );
    for name in ["primary", "second"] {
        stage.fleet.endpoint(name).heal();
    }

    // Without ether, it stops before anything is signed.
    let poor = Stage::new(&["register:a"]).await;
    let account = serde_json::json!([poor.signer.address(), "0x0"]);
    poor.chain.rpc("anvil_setBalance", account).await.expect("anvil answers");
    let said = poor.resumed(&["register:a", "--json"]).await;
    assert_eq!(said.code, 1);
    let told: serde_json::Value = serde_json::from_str(&said.out).expect("it is one JSON value");
    assert_eq!((&told[0]["ended"], &told[0]["error"]["delivery"]), (&false.into(), &"not_sent".into()));
    assert_eq!(poor.effects().await, (0, 0));
    let said = poor.look(&["show", "register:a"]).done();
    assert!(said.contains("Stopped: ") && said.contains("It does not go on by itself"), "{said}");
}

#[tokio::test]
async fn nothing_goes_on_where_the_command_cannot_be_carried_out_as_it_is() {
    let stage = Stage::new(&["register:a"]).await;
    let said = stage.resumed(&["register:a", "register:b"]).await.failed();
    assert!(
        said.contains("no intent under the key `register:b` on chain 31337; nothing was resumed"),
        "{said}"
    );

    let other = PrivateKeySigner::random();
    let mut wrong = stage.resume(&["register:a"]);
    wrong.env("BACKSTAY_PRIVATE_KEY", format!("{:x}", other.to_bytes()));
    let said = Said::of(wrong.output().await.expect("it starts")).failed();
    assert!(said.contains(&stage.signer.address().to_string()), "{said}");
    assert!(said.contains(&other.address().to_string()) && said.contains("nothing was resumed"), "{said}");

    for (key, words) in
        [("", "set BACKSTAY_PRIVATE_KEY, or give --keystore"), ("0xhush", "is no private key")]
    {
        let mut wrong = stage.resume(&["register:a"]);
        wrong.env("BACKSTAY_PRIVATE_KEY", key);
        let said = Said::of(wrong.output().await.expect("it starts")).failed();
        assert!(said.contains(words) && !said.contains("hush"), "{said}");
    }

    let said = stage.resumed(&["register:a", "--journal", "/not/there.db"]).await.failed();
    assert!(said.contains("/not/there.db"), "{said}");
    let said =
        stage.resumed(&["register:a", "--keystore", "/not/there", "--password-file", "/nor/there"]).await;
    assert!(said.failed().contains("the password file /nor/there cannot be read"));
    assert_eq!(stage.effects().await, (0, 0));
    assert!(stage.fleet.records().is_empty(), "an endpoint was asked");
}

#[tokio::test]
async fn the_key_may_be_in_a_keystore() {
    let signer = KEY_IN_STORE.parse().expect("it is a key");
    let stage = Stage::of(signer, &["register:a"]).await;
    let folder = stage.folder.path();
    fs::write(folder.join("key.json"), KEYSTORE).expect("it is written");
    let password = folder.join("password");
    let (store, password) = (folder.join("key.json"), password.to_str().expect("it is text").to_owned());
    let store = store.to_str().expect("it is text");
    let arguments = ["register:a", "--keystore", store, "--password-file", &password];
    fs::write(&password, "wrong\n").expect("it is written");
    let mut wrong = stage.resume(&arguments);
    let said = Said::of(wrong.env_remove("BACKSTAY_PRIVATE_KEY").output().await.expect("it starts")).failed();
    assert!(said.contains("or the password is wrong"), "{said}");

    fs::write(&password, "testpassword\n").expect("it is written");
    let mut right = stage.resume(&arguments);
    let said = Said::of(right.env_remove("BACKSTAY_PRIVATE_KEY").output().await.expect("it starts"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(stage.effects().await, (1, 1));
}
