//! `backstay journal resume`.

use std::{
    env, fs,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context, bail, ensure};
use backstay::{
    AllowanceFlow, Client, Config, Error, ErrorKind, Intent, Outcome, Resume, Retry, journal::Journal,
};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use serde_json::{Value, json};

use crate::{
    args,
    output::{clean, print, print_json, table, time},
    place,
    story::Story,
    tell::{delivery_words, due_words, outcome_json, outcome_words, retry_words},
};

/// The variable that holds the signer's key.
const PRIVATE_KEY: &str = "BACKSTAY_PRIVATE_KEY";
/// How often the journal is looked at for news.
const POLL: Duration = Duration::from_millis(250);
/// How long to wait when the journal could not be read, before the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes intents go on, and waits for their ends.
pub(crate) async fn resume(args: &args::Resume) -> anyhow::Result<ExitCode> {
    let mut config = place::config(&args.config)?;
    let signer = signer(args)?;
    // It must be there: a client would create it.
    let journal = place::open(args.journal.as_deref(), Some(&config)).await?;
    let keys = known(&*journal, &config, &signer, &args.keys).await?;
    config.resume = Resume::OnDemand;
    config.claims.name.get_or_insert_with(|| "backstay journal resume".to_owned());
    let builder = Client::builder(config).signer(signer).flow(AllowanceFlow::new());
    let client = builder.journal(journal.clone()).connect().await?;

    // Journals keep whole milliseconds.
    let since = SystemTime::now() - Duration::from_millis(1);
    let mut intents = Vec::new();
    if args.keys.is_empty() {
        intents = client.resume().await?;
    } else {
        for key in &keys {
            intents.extend(client.resume_intent(key).await?);
        }
    }
    let cut = cut(args.timeout);
    let waiting = intents.iter().map(|intent| follow(&*journal, &client, intent, since, cut.clone()));
    let ends = join_all(waiting).await;
    // The next process need not wait for the claim to end.
    client.close().await?;

    let all_ended = ends.iter().all(|end| matches!(end, End::Ended(_)));
    if args.json {
        let ends = intents.iter().zip(&ends).map(|(intent, end)| as_json(intent, end));
        print_json(&ends.collect())?;
    } else {
        print(&as_text(&intents, &ends))?;
    }
    Ok(if all_ended { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The keys, each once. All of them must be in the journal, and what has not ended must be of the signer's account:
/// otherwise nothing goes on.
async fn known(
    journal: &dyn Journal,
    config: &Config,
    signer: &PrivateKeySigner,
    asked: &[String],
) -> anyhow::Result<Vec<String>> {
    let mut keys: Vec<String> = Vec::new();
    for key in asked {
        let shown = clean(key);
        let stored = journal.load(config.chain_id, key).await.map_err(Error::from)?;
        let Some(stored) = stored else {
            bail!(
                "the journal has no intent under the key `{shown}` on chain {}; nothing was resumed; `backstay journal \
                 list` lists them",
                config.chain_id
            );
        };
        let ended = stored.tombstone.is_some()
            || Story::of(&stored).state.is_some_and(|state| state.outcome.is_some());
        ensure!(
            ended || stored.account == signer.address(),
            "the intent `{shown}` is of account {}, and the key that was given is of {}; nothing was resumed",
            stored.account,
            signer.address()
        );
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    Ok(keys)
}

/// The signer. Nothing of its key is ever shown.
fn signer(args: &args::Resume) -> anyhow::Result<PrivateKeySigner> {
    if let (Some(keystore), Some(password)) = (&args.keystore, &args.password_file) {
        let shown = clean(&password.display().to_string());
        let password = fs::read_to_string(password)
            .with_context(|| format!("the password file {shown} cannot be read"))?;
        let password = password.trim_end_matches(['\r', '\n']);
        let shown = clean(&keystore.display().to_string());
        fs::metadata(keystore).with_context(|| format!("the keystore {shown} cannot be read"))?;
        return PrivateKeySigner::decrypt_keystore(keystore, password).ok().with_context(|| {
            format!("the keystore {shown} does not open: it is no keystore, or the password is wrong")
        });
    }
    let key = env::var(PRIVATE_KEY).ok().filter(|key| !key.trim().is_empty()).with_context(|| {
        format!("no signer: set {PRIVATE_KEY}, or give --keystore FILE with --password-file FILE")
    })?;
    key.trim()
        .parse()
        .ok()
        .with_context(|| format!("{PRIVATE_KEY} is no private key: 64 hexadecimal digits are"))
}

/// Why nobody waits any longer.
#[derive(Clone, Copy)]
enum Cut {
    Time(Duration),
    Interrupted,
}

fn cut(timeout: Duration) -> Shared<BoxFuture<'static, Cut>> {
    let cut = async move {
        tokio::select! {
            () = tokio::time::sleep(timeout) => Cut::Time(timeout),
            Ok(()) = tokio::signal::ctrl_c() => Cut::Interrupted,
        }
    };
    cut.boxed().shared()
}

/// What came of an intent.
enum End {
    /// It has ended.
    Ended(Outcome),
    /// A run of it ended with an error.
    Stopped(Error),
    /// It goes on, and was not waited for any longer.
    Open(Cut, Option<String>),
}

/// Waits for how an intent ends, and tells meanwhile what happens.
async fn follow(
    journal: &dyn Journal,
    client: &Client,
    intent: &Intent,
    since: SystemTime,
    cut: Shared<BoxFuture<'static, Cut>>,
) -> End {
    let mut teller = Teller { journal, chain_id: client.chain_id(), intent, since, story: Story::default() };
    let ending = async {
        loop {
            match intent.outcome().await {
                Ok(outcome) => return End::Ended(outcome),
                // It goes on by itself when the journal does.
                Err(error) if *error.kind() == ErrorKind::Journal && error.retry() == Retry::Later => {
                    eprintln!("{}: {}", clean(intent.key()), clean(&error.to_string()));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return End::Stopped(error),
            }
        }
    };
    let end = tokio::select! {
        end = ending => end,
        () = teller.tell() => unreachable!("it tells for ever"),
        cut = cut => End::Open(cut, None),
    };
    teller.catch_up().await;
    match end {
        End::Open(cut, _) => End::Open(cut, teller.story.state.as_ref().and_then(due_words)),
        end => end,
    }
}

/// Tells on standard error what is written down about an intent.
struct Teller<'a> {
    journal: &'a dyn Journal,
    chain_id: u64,
    intent: &'a Intent,
    /// What is older is not told.
    since: SystemTime,
    story: Story,
}

impl Teller<'_> {
    async fn tell(&mut self) {
        loop {
            self.catch_up().await;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Tells what is new. Where the journal cannot be read, whoever waits says so.
    async fn catch_up(&mut self) {
        let Ok(Some(stored)) = self.journal.load(self.chain_id, self.intent.key()).await else { return };
        for entry in stored.entries.iter().skip(self.story.lines.len()) {
            let words = self.story.add(entry).words.clone();
            if entry.at >= self.since {
                eprintln!("{} {}: {words}", time(entry.at), clean(self.intent.key()));
            }
        }
    }
}

fn as_json(intent: &Intent, end: &End) -> Value {
    let (ended, outcome, error) = match end {
        End::Ended(outcome) => (true, outcome_json(outcome), Value::Null),
        End::Stopped(error) => {
            let (why, retry, delivery) = (error.to_string(), error.retry(), error.delivery());
            (false, Value::Null, json!({ "why": why, "retry": retry, "delivery": delivery }))
        }
        End::Open(cut, _) => (false, Value::Null, json!({ "why": cut_words(*cut) })),
    };
    json!({ "key": intent.key(), "ended": ended, "outcome": outcome, "error": error })
}

fn as_text(intents: &[Intent], ends: &[End]) -> String {
    if intents.is_empty() {
        return "Every intent of the account has ended.\n".to_owned();
    }
    let mut shown = table(["KEY", "ENDED", "HOW, OR WHY NOT"]);
    for (intent, end) in intents.iter().zip(ends) {
        let (ended, words) = match end {
            End::Ended(outcome) => ("yes", outcome_words(outcome)),
            End::Stopped(error) => (
                "no",
                format!("{error} ({}; {})", delivery_words(error.delivery()), retry_words(error.retry())),
            ),
            End::Open(cut, next) => {
                let next = next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
                ("no", format!("{}{next}", cut_words(*cut)))
            }
        };
        shown.add_row([clean(intent.key()), ended.to_owned(), clean(&words)]);
    }
    shown.trim_fmt() + "\n"
}

fn cut_words(cut: Cut) -> String {
    match cut {
        Cut::Time(timeout) => {
            format!("it has not ended within {}; nothing is lost", humantime::format_duration(timeout))
        }
        Cut::Interrupted => "interrupted; nothing is lost".to_owned(),
    }
}
