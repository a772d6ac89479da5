//! The journal of tests.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use alloy_primitives::B256;
use async_trait::async_trait;
use backstay_core::tx::{Record, RecordEffect, StepId};
use tokio::time::Instant;

use crate::{
    Author, Claim, Claiming, Entry, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent,
    Owner, Query, State, Stored, Summary, Tombstone,
    effects::{check_key, ends, following, storable_chain, storable_nonce},
    journal::{at_millis, millis_now},
};

/// A journal in memory, gone with the process: for tests, and for trying things out. It does everything
/// that a durable one does, so a test that passes on it says something about the others.
///
/// Clones are handles to the same store. Its clock, for claims, is tokio's, which tests can pause.
#[derive(Clone, Default)]
pub struct MemoryJournal {
    store: Arc<Mutex<Store>>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Every change is made whole after all checks have passed: a panic cannot have left half of one.
        self.store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryJournal").field("intents", &self.store().intents.len()).finish()
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError> {
        storable_chain(line.chain_id)?;
        Ok(self.store().claim(line, owner, ttl))
    }

    async fn release(&self, claim: Claim) -> Result<(), JournalError> {
        if let Some(held) = self.store().lines.get_mut(&claim.line).filter(|held| held.token == claim.token) {
            held.until = None;
        }
        Ok(())
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>, JournalError> {
        let store = self.store();
        let now = Instant::now();
        let held = store.lines.get(&line).and_then(|held| held.owner.clone().zip(held.until));
        let held = held.filter(|(_, until)| *until > now);
        Ok(held.map(|(owner, until)| Holder { owner, remaining: until - now }))
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        check_key(&intent.key)?;
        storable_chain(intent.chain_id)?;
        Ok(self.store().open(intent))
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        Ok(self.store().load(chain_id, key))
    }

    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        self.store().append(author, intent, after, records)
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError> {
        let store = self.store();
        let fits = |intent: &&Intent| {
            query.chain_id.is_none_or(|chain_id| intent.line.chain_id == chain_id)
                && query.account.is_none_or(|account| intent.line.account == account)
                && query.key.as_ref().is_none_or(|key| intent.key == *key)
                && query.after.is_none_or(|after| intent.id > after)
                && (query.states.is_empty() || query.states.contains(&intent.state))
        };
        let fitting = store.intents.values().filter(fits).take(query.limit as usize);
        Ok(fitting.map(Intent::summary).collect())
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError> {
        let store = self.store();
        let held = store.slots.range((line, 0)..=(line, u64::MAX));
        let accounted = store.lines.get(&line).and_then(|line| line.accounted);
        let accounted = accounted.max(held.clone().next_back().map(|((_, nonce), _)| following(*nonce)));
        let slots = held.filter(|((_, nonce), _)| *nonce >= from);
        let slots = slots.map(|((_, nonce), slot)| (*nonce, &store.intents[&slot.intent]));
        let finished = slots.clone().filter(|(_, intent)| intent.state == State::Finished);
        let used = finished.map(|(nonce, _)| following(nonce)).max();
        let slots = slots.map(|(nonce, intent)| (nonce, intent.key.clone())).collect();
        Ok(LineState { slots, accounted, used })
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError> {
        storable_chain(line.chain_id)?;
        storable_nonce(nonce)?;
        self.store().account_for(line, nonce);
        Ok(())
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError> {
        Ok(self.store().prune(chain_id, older_than, limit))
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        Ok(self.store().genesis.get(&chain_id).copied())
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        storable_chain(chain_id)?;
        Ok(*self.store().genesis.entry(chain_id).or_insert(hash))
    }
}

#[derive(Default)]
struct Store {
    intents: BTreeMap<IntentId, Intent>,
    newest: u64,
    keys: HashMap<(u64, String), IntentId>,
    lines: HashMap<Line, Held>,
    slots: BTreeMap<(Line, u64), Slot>,
    genesis: HashMap<u64, B256>,
}

struct Intent {
    id: IntentId,
    line: Line,
    key: String,
    state: State,
    entries: Vec<Entry>,
    /// How many there are, or were.
    records: u64,
    /// Whether anything was ever signed for it.
    signed: bool,
    opened: SystemTime,
    changed: SystemTime,
    tombstone: Option<Tombstone>,
}

/// A line: who holds it.
#[derive(Default)]
struct Held {
    owner: Option<Owner>,
    token: u64,
    until: Option<Instant>,
    accounted: Option<u64>,
}

/// Who holds a nonce.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    intent: IntentId,
    step: StepId,
}

impl Store {
    fn claim(&mut self, line: Line, owner: &Owner, ttl: Duration) -> Claiming {
        let now = Instant::now();
        let held = self.lines.entry(line).or_default();
        if held.owner.as_ref() != Some(owner) {
            if let (Some(holder), Some(until)) = (&held.owner, held.until.filter(|until| *until > now)) {
                return Claiming::Elsewhere { owner: holder.clone(), remaining: until - now };
            }
            held.token += 1;
            held.owner = Some(owner.clone());
        }
        held.until = Some(now + ttl);
        Claiming::Held(Claim { line, token: held.token })
    }

    fn open(&mut self, new: NewIntent) -> Stored {
        if let Some(stored) = self.load(new.chain_id, &new.key) {
            return stored;
        }
        self.newest += 1;
        let id = IntentId::new(self.newest);
        let entries = entries(&new.records());
        let at = entries.first().map_or(SystemTime::UNIX_EPOCH, |entry| entry.at);
        let intent = Intent {
            id,
            line: Line { chain_id: new.chain_id, account: new.account },
            state: State::Due,
            records: entries.len() as u64,
            signed: false,
            entries,
            key: new.key,
            opened: at,
            changed: at,
            tombstone: None,
        };
        let stored = Stored { created: true, ..intent.stored() };
        self.keys.insert((new.chain_id, intent.key.clone()), id);
        self.intents.insert(id, intent);
        stored
    }

    fn load(&self, chain_id: u64, key: &str) -> Option<Stored> {
        let id = self.keys.get(&(chain_id, key.to_owned()))?;
        self.intents.get(id).map(Intent::stored)
    }

    fn append(
        &mut self,
        author: Author,
        id: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        let Some(intent) = self.intents.get(&id) else {
            return Err(JournalError::UnknownIntent { intent: id });
        };
        let line = intent.line;
        let owns = match author {
            Author::Owner(claim) => {
                claim.line == line && self.lines.get(&line).is_some_and(|held| held.token == claim.token)
            }
            Author::Caller => records.iter().all(Record::is_of_caller),
        };
        if !owns {
            return Err(JournalError::ClaimLost { account: line.account });
        }
        match intent.state {
            State::Due | State::Stopped => {}
            State::Finished | State::Pruned => return Err(JournalError::Finished { intent: id }),
        }
        let found = intent.records;
        if found != after {
            return Err(JournalError::Conflict { after, found });
        }
        ends(records).ok_or(JournalError::Finished { intent: id })?;
        let slots = self.slots_after(intent, records)?;

        for (nonce, slot) in slots {
            match slot {
                Some(slot) => self.slots.insert((line, nonce), slot),
                None => self.slots.remove(&(line, nonce)),
            };
        }
        for effect in records.iter().filter_map(Record::effect) {
            if let RecordEffect::Lose { nonce } = effect {
                self.account_for(line, following(nonce));
            }
        }
        if let (Some(intent), Some(state)) = (self.intents.get_mut(&id), State::after(records)) {
            intent.entries.extend(entries(records));
            intent.records = intent.entries.len() as u64;
            intent.signed |=
                records.iter().any(|record| matches!(record.effect(), Some(RecordEffect::Take { .. })));
            intent.changed = intent.entries.last().map_or(intent.changed, |entry| entry.at);
            intent.state = state;
        }
        Ok(())
    }

    /// Who holds the nonces that the records take and free, once all of them are appended.
    fn slots_after(
        &self,
        intent: &Intent,
        records: &[Record],
    ) -> Result<BTreeMap<u64, Option<Slot>>, JournalError> {
        let mut changed = BTreeMap::new();
        for effect in records.iter().filter_map(Record::effect) {
            let (RecordEffect::Take { nonce, .. }
            | RecordEffect::Release { nonce }
            | RecordEffect::Lose { nonce }) = effect
            else {
                continue;
            };
            storable_nonce(nonce)?;
            let held = match changed.get(&nonce) {
                Some(slot) => *slot,
                None => self.slots.get(&(intent.line, nonce)).copied(),
            };
            match (effect, held) {
                (RecordEffect::Take { step, .. }, None) => {
                    changed.insert(nonce, Some(Slot { intent: intent.id, step }));
                }
                (RecordEffect::Take { step, .. }, Some(held)) if held == Slot { intent: intent.id, step } => {
                }
                (RecordEffect::Take { .. }, Some(held)) => {
                    let key = self.intents[&held.intent].key.clone();
                    return Err(JournalError::SlotTaken { nonce, key });
                }
                (RecordEffect::Release { .. } | RecordEffect::Lose { .. }, Some(held))
                    if held.intent == intent.id =>
                {
                    changed.insert(nonce, None);
                }
                (RecordEffect::Release { .. } | RecordEffect::Lose { .. }, _) => {
                    return Err(JournalError::SlotNotHeld { nonce });
                }
                (RecordEffect::Finish, _) => {}
            }
        }
        Ok(changed)
    }

    fn account_for(&mut self, line: Line, nonce: u64) {
        let line = self.lines.entry(line).or_default();
        line.accounted = line.accounted.max(Some(nonce));
    }

    fn prune(&mut self, chain_id: u64, older_than: Duration, limit: u32) -> u32 {
        let age = u64::try_from(older_than.as_millis()).unwrap_or(u64::MAX);
        let before = at_millis(millis_now().saturating_sub(age));
        let old = |intent: &&Intent| {
            let ended = match intent.state {
                State::Finished => true,
                State::Stopped => !intent.signed,
                State::Due | State::Pruned => false,
            };
            ended && intent.line.chain_id == chain_id && intent.changed <= before
        };
        let mut old: Vec<_> =
            self.intents.values().filter(old).map(|intent| (intent.changed, intent.id)).collect();
        old.sort_unstable();
        old.truncate(limit as usize);
        for (_, id) in &old {
            self.bury(*id);
        }
        old.len() as u32
    }

    fn bury(&mut self, id: IntentId) {
        let Some(intent) = self.intents.get_mut(&id) else { return };
        let line = intent.line;
        match Tombstone::of(intent.entries.iter().map(|entry| &entry.record)) {
            Some(tombstone) => {
                intent.entries.clear();
                (intent.state, intent.tombstone) = (State::Pruned, Some(tombstone));
            }
            None => {
                self.keys.remove(&(line.chain_id, intent.key.clone()));
                self.intents.remove(&id);
            }
        }
        let held = self.slots.iter().filter(|(_, slot)| slot.intent == id).map(|((_, nonce), _)| *nonce);
        if let Some(nonce) = held.max() {
            self.account_for(line, following(nonce));
        }
        self.slots.retain(|_, slot| slot.intent != id);
    }
}

impl Intent {
    fn stored(&self) -> Stored {
        Stored {
            id: self.id,
            chain_id: self.line.chain_id,
            key: self.key.clone(),
            account: self.line.account,
            created: false,
            entries: self.entries.clone(),
            tombstone: self.tombstone.clone(),
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            chain_id: self.line.chain_id,
            key: self.key.clone(),
            account: self.line.account,
            state: self.state,
            records: self.records,
            signed: self.signed,
            opened: self.opened,
            changed: self.changed,
        }
    }
}

fn entries(records: &[Record]) -> Vec<Entry> {
    let at = at_millis(millis_now());
    records.iter().map(|record| Entry { at, record: record.clone() }).collect()
}
