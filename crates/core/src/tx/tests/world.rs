//! A chain with one account, one token and one contract that takes tokens; and what endpoints say to sends.

use std::collections::VecDeque;

use alloy_primitives::{Address, Bytes, TxHash, U256, keccak256};
use alloy_sol_types::{SolCall, sol};

use crate::{
    failure::RefusalKind,
    tx::{Check, Content, Grant, Inclusion, PlanStep, SendAnswer},
    units::BlockRef,
};

sol! {
    function approve(address spender, uint256 amount) external returns (bool);
    function allowance(address owner, address spender) external view returns (uint256);
    function register() external;
    function touch() external;
    function reset() external;
}

pub(super) const ACCOUNT: Address = Address::repeat_byte(0xaa);
pub(super) const TOKEN: Address = Address::repeat_byte(0x11);
pub(super) const REGISTRY: Address = Address::repeat_byte(0x22);
/// What one registration takes, in tokens.
pub(super) const NEED: u64 = 5;
/// How many blocks on top of it make a block final.
pub(super) const FINAL_DEPTH: u64 = 4;

/// The intent's own call: takes `NEED` tokens, and counts as the effect.
pub(super) fn register() -> Content {
    Content { to: REGISTRY, value: U256::ZERO, input: registerCall {}.abi_encode().into() }
}

/// A call that needs no allowance.
pub(super) fn touch() -> Content {
    Content { to: REGISTRY, value: U256::ZERO, input: touchCall {}.abi_encode().into() }
}

/// What the flow plans for an allowance that is too low.
pub(super) fn plan(quirks: Quirks) -> Vec<PlanStep> {
    let reset = Content { to: TOKEN, value: U256::ZERO, input: resetCall {}.abi_encode().into() };
    let reset = PlanStep { label: "reset".into(), call: reset, until: None };
    quirks.resets_revert.map(|_| reset).into_iter().chain([approve()]).collect()
}

fn approve() -> PlanStep {
    let approve = approveCall { spender: REGISTRY, amount: U256::from(NEED) };
    let read = allowanceCall { owner: ACCOUNT, spender: REGISTRY };
    PlanStep {
        label: "approve".into(),
        call: Content { to: TOKEN, value: U256::ZERO, input: approve.abi_encode().into() },
        until: Some(Check { to: TOKEN, input: read.abi_encode().into(), at_least: U256::from(NEED) }),
    }
}

pub(super) fn grant(cap: u64) -> Vec<Grant> {
    vec![Grant { token: TOKEN, spender: REGISTRY, cap: U256::from(cap) }]
}

/// Signed bytes: of the account, or of whoever else has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tx {
    pub(super) hash: TxHash,
    pub(super) nonce: u64,
    pub(super) call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Sets the allowance to zero first: some tokens want that.
    Reset,
    Approve,
    Register,
    Touch,
    /// A transaction that this account's owner made elsewhere.
    Strange,
}

/// What a block does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Transaction(Tx),
    /// The contract takes what it may take, in a transaction of somebody else's.
    Spend,
}

/// What became of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mined {
    pub(super) hash: TxHash,
    pub(super) nonce: u64,
    pub(super) call: Call,
    pub(super) succeeded: bool,
}

/// What endpoints do with the next send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A pool has it, and says so.
    Taken,
    /// A pool has it, and the reply is lost.
    LostKept,
    /// It is lost, and so is the reply.
    Lost,
    /// No endpoint is reached.
    NotSent,
    /// All endpoints refuse it.
    Refused(RefusalKind),
    /// Somebody else's transaction has used the nonce just now.
    Beaten,
    /// A pool takes it, and loses it.
    TakenAndLost,
    /// It is in a block at once, and whoever is asked next by a balancer says that its nonce is used.
    TakenTwice,
}

/// The state after a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) count: u64,
    pub(super) allowance: u64,
    pub(super) effects: u32,
    resets: u32,
    approves: u32,
    registers: u32,
}

#[derive(Clone, Debug, Default)]
struct Block {
    branch: u8,
    deeds: Vec<Deed>,
    mined: Vec<Mined>,
    after: State,
}

/// What the contracts do otherwise than they should.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quirks {
    /// So many approves revert when they are included.
    pub(super) approves_revert: u32,
    /// The token must be reset before an approve, and so many resets revert when they are included.
    pub(super) resets_revert: Option<u32>,
    /// So many registrations revert when they are included.
    pub(super) registers_revert: u32,
    /// So many simulations of an approve revert.
    pub(super) approves_fail: u32,
    /// The allowance is spent by others right after the first approve.
    pub(super) first_approve_is_spent: bool,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    blocks: Vec<Block>,
    pool: Vec<Tx>,
    pub(super) replies: VecDeque<Reply>,
    /// What endpoints say for ever to bytes that are no stranger's.
    pub(super) refuses: Option<RefusalKind>,
    pub(super) quirks: Quirks,
    /// How many blocks the view of whoever asks is behind.
    pub(super) lag: u64,
    /// Bytes that arrive at a pool in so many blocks: a dead process sent them.
    pub(super) late: Option<(u32, Tx)>,
    /// All bytes that an endpoint was sent, in order.
    pub(super) heard: Vec<Tx>,
    /// Those of them that an endpoint may have kept: all others it has refused.
    kept: Vec<Tx>,
    salt: u64,
}

impl World {
    pub(super) fn new(allowance: u64) -> Self {
        let genesis = Block { after: State { allowance, ..State::default() }, ..Block::default() };
        let mut world = Self {
            blocks: vec![genesis],
            pool: Vec::new(),
            replies: VecDeque::new(),
            refuses: None,
            quirks: Quirks::default(),
            lag: 0,
            late: None,
            heard: Vec::new(),
            kept: Vec::new(),
            salt: 0,
        };
        (0..3).for_each(|_| world.tick());
        world
    }

    pub(super) fn head(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    /// The newest block that whoever asks is shown, at or above a fence.
    pub(super) fn view(&self, fence: u64) -> BlockRef {
        self.block(self.head().saturating_sub(self.lag).max(fence))
    }

    pub(super) fn block(&self, number: u64) -> BlockRef {
        let branch = self.blocks[number as usize].branch;
        BlockRef { number, hash: keccak256([number.to_be_bytes().as_slice(), &[branch]].concat()) }
    }

    pub(super) fn at(&self, number: u64) -> &State {
        &self.blocks[number as usize].after
    }

    pub(super) fn now(&self) -> &State {
        self.at(self.head())
    }

    pub(super) fn is_final(&self, number: u64) -> bool {
        number + FINAL_DEPTH <= self.head()
    }

    pub(super) fn mined(&self) -> impl Iterator<Item = (u64, &Mined)> {
        let numbered = self.blocks.iter().enumerate();
        numbered.flat_map(|(number, block)| block.mined.iter().map(move |mined| (number as u64, mined)))
    }

    /// How often others have spent the allowance.
    pub(super) fn spent(&self) -> usize {
        self.blocks.iter().flat_map(|block| &block.deeds).filter(|deed| **deed == Deed::Spend).count()
    }

    pub(super) fn pool(&self) -> &[Tx] {
        &self.pool
    }

    pub(super) fn receipt(&self, hash: TxHash) -> Option<Inclusion> {
        let (number, mined) = self.mined().find(|(_, mined)| mined.hash == hash)?;
        let (block, succeeded) = (self.block(number), mined.succeeded);
        Some(Inclusion { hash, block, succeeded, gas_used: 1 })
    }

    /// Who used a nonce, and in which block.
    pub(super) fn user_of(&self, nonce: u64) -> Option<(u64, TxHash)> {
        self.mined().find(|(_, mined)| mined.nonce == nonce).map(|(number, mined)| (number, mined.hash))
    }

    /// Whether a call works at a block.
    pub(super) fn simulate(&mut self, call: &Content, at: u64) -> bool {
        match call_of(call) {
            Call::Register => self.at(at).allowance >= NEED,
            Call::Approve if self.quirks.approves_fail > 0 => {
                self.quirks.approves_fail -= 1;
                false
            }
            Call::Reset | Call::Approve | Call::Touch | Call::Strange => true,
        }
    }

    /// Bytes for a call. No two are the same: fees move.
    pub(super) fn sign(&mut self, nonce: u64, call: &Content) -> (TxHash, Bytes) {
        self.salt += 1;
        let raw = [&nonce.to_be_bytes()[..], &self.salt.to_be_bytes(), &call.input].concat();
        (keccak256(&raw), raw.into())
    }

    pub(super) fn send(&mut self, raw: &Bytes) -> SendAnswer {
        let tx = decode(raw);
        let reply = self.replies.pop_front().unwrap_or(Reply::Taken);
        if reply == Reply::NotSent {
            return SendAnswer::NotSent;
        }
        if reply == Reply::Beaten {
            self.strangers_block();
        }
        self.heard.push(tx.clone());
        if reply == Reply::TakenTwice && tx.nonce == self.now().count {
            self.keep(tx.clone());
            self.tick();
        }
        if reply == Reply::Lost {
            self.kept.push(tx);
            return SendAnswer::Unknown;
        }
        if tx.nonce < self.now().count {
            return SendAnswer::Refused(RefusalKind::NonceTooLow);
        }
        if self.pool.contains(&tx) {
            return SendAnswer::Accepted;
        }
        if self.pool.iter().any(|other| other.nonce == tx.nonce) {
            return SendAnswer::Refused(RefusalKind::ReplacementUnderpriced);
        }
        match (reply, self.refuses) {
            (Reply::Refused(kind), _) | (_, Some(kind)) => SendAnswer::Refused(kind),
            (Reply::LostKept, None) => {
                self.keep(tx);
                SendAnswer::Unknown
            }
            (Reply::TakenAndLost, None) => {
                self.kept.push(tx);
                SendAnswer::Accepted
            }
            (Reply::Taken | Reply::Lost | Reply::NotSent | Reply::Beaten | Reply::TakenTwice, None) => {
                self.keep(tx);
                SendAnswer::Accepted
            }
        }
    }

    /// One more block, with what the pool has next.
    pub(super) fn tick(&mut self) {
        match self.late.take() {
            Some((0, tx)) => self.arrive(&tx),
            Some((blocks, tx)) => self.late = Some((blocks - 1, tx)),
            None => {}
        }
        let mut deeds = Vec::new();
        let mut next = self.now().count;
        while let Some(place) = self.pool.iter().position(|tx| tx.nonce == next) {
            deeds.push(Deed::Transaction(self.pool.remove(place)));
            next += 1;
        }
        let approves = |deed: &Deed| matches!(deed, Deed::Transaction(tx) if tx.call == Call::Approve);
        if self.quirks.first_approve_is_spent && self.now().approves == 0 && deeds.iter().any(approves) {
            deeds.push(Deed::Spend);
        }
        self.push(0, deeds);
    }

    /// A block in which somebody else has used the account's next nonce.
    pub(super) fn strangers_block(&mut self) {
        let nonce = self.now().count;
        let hash = keccak256([b"strange".as_slice(), &nonce.to_be_bytes()].concat());
        self.push(0, vec![Deed::Transaction(Tx { hash, nonce, call: Call::Strange })]);
    }

    /// A block in which the allowance is spent by somebody else.
    pub(super) fn spending_block(&mut self) {
        self.push(0, vec![Deed::Spend]);
    }

    /// Bytes arrive at a pool, whoever sent them.
    pub(super) fn arrive(&mut self, tx: &Tx) {
        self.heard.push(tx.clone());
        let taken = tx.nonce < self.now().count || self.pool.iter().any(|other| other.nonce == tx.nonce);
        if !taken {
            self.keep(tx.clone());
        }
    }

    fn keep(&mut self, tx: Tx) {
        self.kept.push(tx.clone());
        self.pool.push(tx);
    }

    /// The pools have forgotten all that they had.
    pub(super) fn forget(&mut self) {
        self.pool.clear();
    }

    /// The last stranger's transaction that is not final yet is reorganised away, and what an endpoint
    /// may have kept for its nonce takes its place. Says whether there was one.
    pub(super) fn reorganise(&mut self) -> bool {
        let strange = self.mined().filter(|(_, mined)| mined.call == Call::Strange).last();
        let Some((number, mined)) = strange.filter(|(number, _)| !self.is_final(*number)) else {
            return false;
        };
        let (nonce, hash) = (mined.nonce, mined.hash);
        let Some(ours) = self.kept.iter().find(|tx| tx.nonce == nonce).cloned() else { return false };
        let later: Vec<Block> = self.blocks.drain(number as usize..).collect();
        for block in later {
            let replace = |deed| match deed {
                Deed::Transaction(tx) if tx.hash == hash => Deed::Transaction(ours.clone()),
                other => other,
            };
            self.push(block.branch + 1, block.deeds.into_iter().map(replace).collect());
        }
        true
    }

    fn push(&mut self, branch: u8, deeds: Vec<Deed>) {
        let mut after = self.now().clone();
        let mut mined = Vec::new();
        for deed in &deeds {
            match deed {
                Deed::Spend => after.allowance = 0,
                Deed::Transaction(tx) => {
                    assert_eq!(tx.nonce, after.count, "the chain includes nonces in order");
                    after.count += 1;
                    let succeeded = after.apply(tx.call, self.quirks);
                    mined.push(Mined { hash: tx.hash, nonce: tx.nonce, call: tx.call, succeeded });
                }
            }
        }
        let used = after.count;
        self.pool.retain(|tx| tx.nonce >= used);
        self.blocks.push(Block { branch, deeds, mined, after });
    }
}

impl State {
    fn apply(&mut self, call: Call, quirks: Quirks) -> bool {
        match call {
            Call::Reset => {
                self.resets += 1;
                quirks.resets_revert.is_none_or(|revert| self.resets > revert)
            }
            Call::Approve => {
                self.approves += 1;
                let succeeds = self.approves > quirks.approves_revert;
                if succeeds {
                    self.allowance = NEED;
                }
                succeeds
            }
            Call::Register => {
                self.registers += 1;
                let succeeds = self.registers > quirks.registers_revert && self.allowance >= NEED;
                if succeeds {
                    self.allowance -= NEED;
                    self.effects += 1;
                }
                succeeds
            }
            Call::Touch => {
                self.effects += 1;
                true
            }
            Call::Strange => true,
        }
    }
}

/// What signed bytes say.
pub(super) fn decode(raw: &Bytes) -> Tx {
    let nonce = u64::from_be_bytes(raw[..8].try_into().expect("eight bytes"));
    let call = Content { to: Address::ZERO, value: U256::ZERO, input: Bytes::copy_from_slice(&raw[16..]) };
    Tx { hash: keccak256(raw), nonce, call: call_of(&call) }
}

fn call_of(call: &Content) -> Call {
    match call.input.get(..4) {
        Some(selector) if selector == resetCall::SELECTOR => Call::Reset,
        Some(selector) if selector == approveCall::SELECTOR => Call::Approve,
        Some(selector) if selector == registerCall::SELECTOR => Call::Register,
        Some(selector) if selector == touchCall::SELECTOR => Call::Touch,
        Some(_) | None => Call::Strange,
    }
}
