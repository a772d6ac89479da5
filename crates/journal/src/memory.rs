//! The journal of tests.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use alloy_primitives::{Address, B256};
use async_trait::async_trait;
use backstay_core::tx::{Record, RecordEffect, StepId};

use crate::{
    Entry, IntentId, Journal, JournalError, NewIntent, Stored,
    effects::{ends, storable_chain, storable_nonce},
    journal::{at_millis, millis_now},
};

/// A journal in memory, gone with the process: for tests, and for trying things out. It does everything
/// that a durable one does, so a test that passes on it says something about the others.
///
/// Clones are handles to the same store.
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
    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        storable_chain(intent.chain_id)?;
        Ok(self.store().open(intent))
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        Ok(self.store().load(chain_id, key))
    }

    async fn append(&self, intent: IntentId, after: u64, records: &[Record]) -> Result<(), JournalError> {
        self.store().append(intent, after, records)
    }

    async fn unfinished(&self, chain_id: u64) -> Result<Vec<Stored>, JournalError> {
        let store = self.store();
        let open = store.intents.iter().filter(|intent| intent.chain_id == chain_id && !intent.finished);
        Ok(open.map(Intent::stored).collect())
    }

    async fn slots(
        &self,
        chain_id: u64,
        account: Address,
        from: u64,
    ) -> Result<BTreeMap<u64, String>, JournalError> {
        let store = self.store();
        let held = store.slots.range((chain_id, account, from)..=(chain_id, account, u64::MAX));
        Ok(held.map(|((_, _, nonce), slot)| (*nonce, store.intents[slot.intent].key.clone())).collect())
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
    /// An intent's id is its place here, from 1.
    intents: Vec<Intent>,
    keys: HashMap<(u64, String), usize>,
    slots: BTreeMap<(u64, Address, u64), Slot>,
    genesis: HashMap<u64, B256>,
}

struct Intent {
    id: IntentId,
    chain_id: u64,
    key: String,
    account: Address,
    finished: bool,
    entries: Vec<Entry>,
}

/// Who holds a nonce: a place in `Store::intents`, and a step.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    intent: usize,
    step: StepId,
}

impl Store {
    fn open(&mut self, new: NewIntent) -> Stored {
        if let Some(stored) = self.load(new.chain_id, &new.key) {
            return stored;
        }
        let place = self.intents.len();
        let intent = Intent {
            id: IntentId::new(place as u64 + 1),
            chain_id: new.chain_id,
            account: new.account,
            finished: false,
            entries: entries(&new.records()),
            key: new.key,
        };
        let stored = Stored { created: true, ..intent.stored() };
        self.keys.insert((intent.chain_id, intent.key.clone()), place);
        self.intents.push(intent);
        stored
    }

    fn load(&self, chain_id: u64, key: &str) -> Option<Stored> {
        let place = *self.keys.get(&(chain_id, key.to_owned()))?;
        Some(self.intents[place].stored())
    }

    fn append(&mut self, id: IntentId, after: u64, records: &[Record]) -> Result<(), JournalError> {
        let place = usize::try_from(id.get()).ok().and_then(|id| id.checked_sub(1));
        let Some((place, intent)) = place.and_then(|place| Some((place, self.intents.get(place)?))) else {
            return Err(JournalError::UnknownIntent { intent: id });
        };
        if intent.finished {
            return Err(JournalError::Finished { intent: id });
        }
        let found = intent.entries.len() as u64;
        if found != after {
            return Err(JournalError::Conflict { after, found });
        }
        let finished = ends(records).ok_or(JournalError::Finished { intent: id })?;
        let slots = self.slots_after(place, records)?;

        for (nonce, slot) in slots {
            let at = (intent.chain_id, intent.account, nonce);
            match slot {
                Some(slot) => self.slots.insert(at, slot),
                None => self.slots.remove(&at),
            };
        }
        let intent = &mut self.intents[place];
        intent.entries.extend(entries(records));
        intent.finished = finished;
        Ok(())
    }

    /// Who holds the nonces that the records take and release, once all of them are appended.
    fn slots_after(
        &self,
        place: usize,
        records: &[Record],
    ) -> Result<BTreeMap<u64, Option<Slot>>, JournalError> {
        let intent = &self.intents[place];
        let mut changed = BTreeMap::new();
        for effect in records.iter().filter_map(Record::effect) {
            let (RecordEffect::Take { nonce, .. } | RecordEffect::Release { nonce }) = effect else {
                continue;
            };
            storable_nonce(nonce)?;
            let held = match changed.get(&nonce) {
                Some(slot) => *slot,
                None => self.slots.get(&(intent.chain_id, intent.account, nonce)).copied(),
            };
            match (effect, held) {
                (RecordEffect::Take { step, .. }, None) => {
                    changed.insert(nonce, Some(Slot { intent: place, step }));
                }
                (RecordEffect::Take { step, .. }, Some(held)) if held == Slot { intent: place, step } => {}
                (RecordEffect::Take { .. }, Some(held)) => {
                    return Err(JournalError::SlotTaken {
                        nonce,
                        key: self.intents[held.intent].key.clone(),
                    });
                }
                (RecordEffect::Release { .. }, Some(held)) if held.intent == place => {
                    changed.insert(nonce, None);
                }
                (RecordEffect::Release { .. }, _) => return Err(JournalError::SlotNotHeld { nonce }),
                (RecordEffect::Finish, _) => {}
            }
        }
        Ok(changed)
    }
}

impl Intent {
    fn stored(&self) -> Stored {
        Stored {
            id: self.id,
            chain_id: self.chain_id,
            key: self.key.clone(),
            created: false,
            entries: self.entries.clone(),
        }
    }
}

fn entries(records: &[Record]) -> Vec<Entry> {
    let at = at_millis(millis_now());
    records.iter().map(|record| Entry { at, record: record.clone() }).collect()
}
