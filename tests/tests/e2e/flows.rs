//! Recovery flows that users write, and their bounds.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use backstay::{
    AllowanceFlow, BlockRef, Client, Error, ErrorKind, Flow, Result,
    alloy::{
        network::Ethereum,
        primitives::{Address, U256},
        providers::Provider,
        rpc::types::Filter,
        signers::local::PrivateKeySigner,
        sol,
        sol_types::SolCall,
    },
    error_of,
    recovery::{Check, Content, Diagnosis, Failure, PlanContext, PlanStep},
};
use backstay_testkit::sample::{ContextGraphs, Parameters, Token};

use crate::stage::{Stage, says, sends, within};

sol! {
    error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed);
}

/// The owner of the token and of the parameters, who has no tokens.
fn owner(stage: &Stage) -> PrivateKeySigner {
    PrivateKeySigner::from_bytes(&stage.chain.keys()[0]).expect("anvil's keys are keys")
}

/// Mints what a transfer lacked.
#[derive(Debug)]
struct Mint(Address);

#[async_trait::async_trait]
impl Flow for Mint {
    fn name(&self) -> &str {
        "mint"
    }

    fn diagnose(&self, failure: &Failure) -> Diagnosis {
        let revert = failure.revert.as_ref();
        match revert.and_then(|revert| revert.decode::<ERC20InsufficientBalance>()) {
            Some(lacks) => Diagnosis::Recover(format!("{} of {}", lacks.balance, lacks.needed)),
            None => Diagnosis::Pass,
        }
    }

    async fn plan(&self, context: &PlanContext<'_>, failure: &Failure) -> Result<Vec<PlanStep>> {
        let revert = failure.revert.as_ref();
        let Some(lacks) = revert.and_then(|revert| revert.decode::<ERC20InsufficientBalance>()) else {
            return Ok(Vec::new());
        };
        let token = Token::new(self.0, context.provider::<Ethereum>());
        let balance = token.balanceOf(context.account()).call().await;
        let balance = balance.map_err(|error| Error::new(ErrorKind::Recovery, error.to_string()))?;
        let call = Token::mintCall { to: context.account(), amount: lacks.needed - balance };
        let read = Token::balanceOfCall { account: context.account() };
        Ok(vec![PlanStep {
            label: "mint".into(),
            call: Content { to: self.0, value: U256::ZERO, input: call.abi_encode().into() },
            until: Some(Check { to: self.0, input: read.abi_encode().into(), at_least: lacks.needed }),
        }])
    }
}

#[tokio::test]
async fn a_flow_of_the_users_recovers_after_the_allowance_flow() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = owner(&stage);
    let builder = stage.builder(&fleet, &signer).flow(Mint(stage.contracts.token));
    let client = within(builder.connect()).await.expect("it connects");
    let before = stage.nonce(signer.address()).await;
    let intent = stage.registered(&client, "a").await;
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(stage.approvals(signer.address()).await, 1);
    assert_eq!(stage.nonce(signer.address()).await, before + 3, "approve, mint, register");
    says(&intent.trail(), &["allowance", "mint"]);
    let steps: Vec<_> = intent.trail().events().iter().map(|event| event.step.clone()).collect();
    let place = |label: &str| steps.iter().position(|step| step.starts_with(label));
    assert!(place("approve").is_some() && place("approve") < place("mint"), "{steps:?}");
}

/// Asks for the deposit to be set, again and again, and for a result that never comes.
#[derive(Debug)]
struct Futile {
    parameters: Address,
    deposit: U256,
    planned: Arc<AtomicU32>,
    /// Whether it says each time that it sees something else.
    inventive: bool,
}

#[async_trait::async_trait]
impl Flow for Futile {
    fn name(&self) -> &str {
        "futile"
    }

    fn diagnose(&self, failure: &Failure) -> Diagnosis {
        match (&failure.revert, self.inventive) {
            (None, _) => Diagnosis::Pass,
            (Some(_), false) => Diagnosis::Recover("it reverts".into()),
            (Some(_), true) => Diagnosis::Recover(format!("it reverts at {}", failure.block)),
        }
    }

    async fn plan(&self, _: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
        self.planned.fetch_add(1, Ordering::SeqCst);
        let call = Parameters::setDepositCall { current: self.deposit };
        let read = Parameters::depositCall {};
        let at_least = if self.inventive { U256::ZERO } else { U256::MAX };
        Ok(vec![PlanStep {
            label: "set the deposit".into(),
            call: Content { to: self.parameters, value: U256::ZERO, input: call.abi_encode().into() },
            until: Some(Check { to: self.parameters, input: read.abi_encode().into(), at_least }),
        }])
    }
}

impl Futile {
    fn of(stage: &Stage, inventive: bool) -> (Self, Arc<AtomicU32>) {
        let planned = Arc::new(AtomicU32::new(0));
        let (parameters, deposit) = (stage.contracts.parameters, stage.contracts.deposit);
        (Self { parameters, deposit, planned: planned.clone(), inventive }, planned)
    }
}

#[tokio::test]
async fn a_flow_whose_plans_never_help_ends_after_max_rounds() {
    for inventive in [false, true] {
        let stage = Stage::new().await;
        let fleet = stage.sound().await;
        let signer = owner(&stage);
        let (flow, planned) = Futile::of(&stage, inventive);
        let builder = Client::builder(stage.config(&fleet)).signer(signer.clone()).flow(flow);
        let client = within(builder.connect()).await.expect("it connects");
        let before = stage.nonce(signer.address()).await;
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("nothing helps");
        assert!(error.revert().is_some(), "the cause is kept: {error:?}");
        says(&error, &["futile", "2 recovery rounds have run", "max_rounds"]);
        assert_eq!(planned.load(Ordering::SeqCst), 2);
        assert_eq!(stage.nonce(signer.address()).await, before + 2, "one transaction a round");
        assert_eq!(stage.registrations(signer.address()).await, 0);
        // Sent again, it is still over: the rounds are those of the intent, not of a run.
        let again = stage.register(&client, "a").send().await.expect("it is open");
        within(again.outcome()).await.expect_err("nothing helps");
        assert_eq!(stage.nonce(signer.address()).await, before + 2);
    }
}

/// Plans without conditions, and sees the same each time.
#[derive(Debug)]
struct SameAgain(Futile);

#[async_trait::async_trait]
impl Flow for SameAgain {
    fn name(&self) -> &str {
        "same again"
    }

    fn diagnose(&self, _: &Failure) -> Diagnosis {
        Diagnosis::Recover("it reverts".into())
    }

    async fn plan(&self, context: &PlanContext<'_>, failure: &Failure) -> Result<Vec<PlanStep>> {
        let mut steps = self.0.plan(context, failure).await?;
        steps.iter_mut().for_each(|step| step.until = None);
        Ok(steps)
    }
}

#[tokio::test]
async fn the_same_diagnosis_after_a_plan_that_was_carried_out_ends_it() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = owner(&stage);
    let (flow, planned) = Futile::of(&stage, false);
    let builder = Client::builder(stage.config(&fleet)).signer(signer.clone()).flow(SameAgain(flow));
    let client = within(builder.connect()).await.expect("it connects");
    let before = stage.nonce(signer.address()).await;
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("nothing helps");
    says(&error, &["same again", "fails as before"]);
    assert_eq!(planned.load(Ordering::SeqCst), 2, "a plan that is the same again is not carried out");
    assert_eq!(stage.nonce(signer.address()).await, before + 1);
}

#[tokio::test]
async fn no_rounds_turn_recovery_off() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.recovery.max_rounds = 0;
    let builder = Client::builder(config).signer(signer.clone()).flow(AllowanceFlow::new());
    let client = within(builder.connect()).await.expect("it connects");
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("the allowance stays too low");
    let revert = error.revert().unwrap_or_else(|| panic!("{error:?}"));
    assert!(revert.decode::<ContextGraphs::TooLowAllowance>().is_some());
    assert!(sends(&fleet).is_empty());
}

/// Plans by reading a range of logs.
#[derive(Debug)]
struct ReadsLogs;

#[async_trait::async_trait]
impl Flow for ReadsLogs {
    fn name(&self) -> &str {
        "reads logs"
    }

    fn diagnose(&self, _: &Failure) -> Diagnosis {
        Diagnosis::Recover("it reverts".into())
    }

    async fn plan(&self, context: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
        let view = context.provider::<Ethereum>();
        let BlockRef { number, hash } = context.block();
        assert_eq!(view.get_block_number().await.expect("the view's own"), number);
        view.get_logs(&Filter::new().at_block_hash(hash)).await.expect("one block's logs prove themselves");
        let range = view.get_logs(&Filter::new().from_block(0)).await.expect_err("a range does not");
        Err(error_of(&range).expect("it is ours").clone())
    }
}

#[tokio::test]
async fn a_flow_that_reads_a_range_of_logs_is_told_that_it_cannot_be_fenced() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let builder = Client::builder(stage.config(&fleet)).signer(signer).flow(ReadsLogs);
    let client = within(builder.connect()).await.expect("it connects");
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("it cannot plan");
    assert_eq!(*error.kind(), ErrorKind::UnfencedMethod { method: "eth_getLogs".into() }, "{error}");
    says(&error, &["reads logs", "eth_getLogs", "block hash"]);
    let ranges = |call: &backstay_testkit::Call| {
        call.method == "eth_getLogs" && call.params[0].get("blockHash").is_none()
    };
    assert!(!fleet.records().iter().any(ranges), "no endpoint was asked");
}

/// Plans one call, whatever it is.
#[derive(Debug)]
struct Plans(Content);

#[async_trait::async_trait]
impl Flow for Plans {
    fn name(&self) -> &str {
        "plans"
    }

    fn diagnose(&self, _: &Failure) -> Diagnosis {
        Diagnosis::Recover("it reverts".into())
    }

    async fn plan(&self, _: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
        Ok(vec![PlanStep { label: "a step".into(), call: self.0.clone(), until: None }])
    }
}

impl Plans {
    fn a(to: Address, call: &impl SolCall) -> Self {
        Self(Content { to, value: U256::ZERO, input: call.abi_encode().into() })
    }
}

#[tokio::test]
async fn a_flow_cannot_approve_beyond_the_grants() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let (thief, token) = (Address::repeat_byte(0xbd), stage.contracts.token);
    let (spender, cap) = (stage.contracts.graphs, stage.contracts.deposit);
    for (approve, held) in [
        (Token::approveCall { spender: thief, value: U256::ONE }, None),
        (Token::approveCall { spender, value: U256::MAX }, Some(cap)),
    ] {
        let (spender, amount) = (approve.spender, approve.value);
        let builder = Client::builder(stage.config(&fleet)).signer(signer.clone());
        let client = within(builder.flow(Plans::a(token, &approve)).connect()).await.expect("it connects");
        let intent =
            stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("it is not granted");
        assert_eq!(*error.kind(), ErrorKind::NotGranted { token, spender, amount, cap: held }, "{error}");
        says(
            &error,
            &[&token.to_string(), &spender.to_string(), &amount.to_string(), "nothing was approved"],
        );
    }
    assert!(sends(&fleet).is_empty());
    assert_eq!(stage.approvals(signer.address()).await, 0);
}

#[tokio::test]
async fn a_plan_that_reverts_itself_is_named_and_not_sent() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let set = Parameters::setDepositCall { current: U256::ZERO };
    let builder = Client::builder(stage.config(&fleet)).signer(stage.account().await);
    let builder = builder.flow(Plans::a(stage.contracts.parameters, &set));
    let client = within(builder.connect()).await.expect("it connects");
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("only the owner may");
    assert!(error.revert().is_some(), "{error:?}");
    says(&error, &["recovery", "`a step`", &stage.contracts.parameters.to_string()]);
    assert!(sends(&fleet).is_empty());
}

/// Says no.
#[derive(Debug)]
struct Forbids;

#[async_trait::async_trait]
impl Flow for Forbids {
    fn name(&self) -> &str {
        "forbids"
    }

    fn diagnose(&self, _: &Failure) -> Diagnosis {
        Diagnosis::Forbid("not on a Sunday".into())
    }

    async fn plan(&self, _: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
        unreachable!("what is forbidden is not planned")
    }
}

#[tokio::test]
async fn a_flow_that_forbids_recovery_comes_before_those_behind_it() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let builder =
        Client::builder(stage.config(&fleet)).signer(signer).flow(Forbids).flow(AllowanceFlow::new());
    let client = within(builder.connect()).await.expect("it connects");
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("it is forbidden");
    assert!(error.revert().is_some());
    says(&error, &["forbids", "not on a Sunday"]);
    assert!(sends(&fleet).is_empty());
}

/// Panics the first time.
#[derive(Debug)]
struct Panics(Arc<AtomicU32>);

#[async_trait::async_trait]
impl Flow for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn diagnose(&self, _: &Failure) -> Diagnosis {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
        Diagnosis::Pass
    }

    async fn plan(&self, _: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
        unreachable!("it passes")
    }
}

#[tokio::test]
async fn a_flow_that_panics_stops_its_intent_until_it_is_sent_again() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let calls = Arc::<AtomicU32>::default();
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.claims.poll = std::time::Duration::from_millis(20);
    let client =
        Client::builder(config).signer(signer).flow(Panics(calls.clone())).flow(AllowanceFlow::new());
    let client = within(client.connect()).await.expect("it connects");
    let send = async || {
        let intent =
            stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
        within(intent.outcome()).await
    };
    let error = send().await.expect_err("its run is gone");
    assert_eq!(*error.kind(), ErrorKind::Closed);
    says(&error, &["panicked", "send it again under its key"]);

    // Whoever looks at the journal is told too, and nothing goes on by itself.
    let found = client.find_intent("register:a").await.expect("it is read").expect("it is there");
    let told = within(found.outcome()).await.expect_err("it has stopped");
    assert_eq!(*told.kind(), ErrorKind::Stopped);
    says(&told, &["panicked"]);
    stage.registered(&client, "b").await;
    let seen = calls.load(Ordering::SeqCst);
    assert_eq!(seen, 2, "once for each intent");

    send().await.expect("it ends well").included().expect("it is included");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}
