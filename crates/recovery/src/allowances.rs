//! Allowances, which intents of an account share: one at a time may count on one (F5).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use alloy::primitives::Address;
use backstay_core::tx::{Due, Intent};
use tokio::sync::{OwnedMutexGuard, watch};

/// The allowances that intents of this process count on.
#[derive(Debug, Default)]
pub(crate) struct Allowances(Mutex<HashMap<Allowance, Arc<Shared>>>);

/// An ERC-20 allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Allowance {
    owner: Address,
    token: Address,
    spender: Address,
}

#[derive(Debug, Default)]
struct Shared {
    /// Who holds it counts on what it reads of it.
    line: Arc<tokio::sync::Mutex<()>>,
    /// How many have bytes out that may spend it, without holding it.
    spending: watch::Sender<usize>,
}

/// What a run has of its allowances.
#[derive(Debug, Default)]
pub struct Hold(Has);

#[derive(Debug, Default)]
enum Has {
    /// Nothing yet, or nothing any more.
    #[default]
    Nothing,
    /// They are its own.
    Alone(#[expect(dead_code, reason = "they are held, not read")] Vec<OwnedMutexGuard<()>>),
    /// Somebody else holds them, and it has bytes out.
    Spending(#[expect(dead_code, reason = "it is held, not read")] Spending),
}

/// Says so while bytes are out that may spend allowances of somebody else.
#[derive(Debug)]
struct Spending(Vec<Arc<Shared>>);

/// Whether others had to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Yes,
    No,
}

impl Allowances {
    /// Takes them for an intent for which something was signed, where nobody holds any of them.
    pub(crate) fn reserve(&self, intent: &Intent) -> Hold {
        let ended = matches!(intent.due(), Due::Conclude { .. } | Due::Nothing(_));
        if intent.transactions.is_empty() || ended {
            return Hold::default();
        }
        let all = self.of(intent);
        let taken: Option<Vec<_>> =
            all.iter().map(|shared| shared.line.clone().try_lock_owned().ok()).collect();
        match (taken, intent.due()) {
            (Some(guards), _) => Hold(Has::Alone(guards)),
            (None, Due::Settle { .. }) => Hold(Has::Spending(Spending::new(all))),
            (None, Due::Prepare { .. } | Due::Check { .. } | Due::Conclude { .. } | Due::Nothing(_)) => {
                Hold::default()
            }
        }
    }

    /// Waits for them, in one order, so that no two wait for each other, and until no bytes are out that spend them.
    pub(crate) async fn hold(&self, intent: &Intent, hold: &mut Hold) -> Waited {
        if let Has::Alone(_) = hold.0 {
            return Waited::No;
        }
        // What it spent is included by now, and whoever holds them may be waiting for that.
        *hold = Hold::default();
        let all = self.of(intent);
        let mut waited = Waited::No;
        loop {
            let mut guards = Vec::with_capacity(all.len());
            for shared in &all {
                guards.push(match shared.line.clone().try_lock_owned() {
                    Ok(guard) => guard,
                    Err(_) => {
                        waited = Waited::Yes;
                        shared.line.clone().lock_owned().await
                    }
                });
            }
            let Some(spent) = all.iter().find(|shared| *shared.spending.borrow() > 0) else {
                *hold = Hold(Has::Alone(guards));
                return waited;
            };
            // Let go meanwhile: those who spend may want to hold them next.
            drop(guards);
            waited = Waited::Yes;
            // The sender is held here, so it cannot be gone.
            let _ = spent.spending.subscribe().wait_for(|spending| *spending == 0).await;
        }
    }

    fn of(&self, intent: &Intent) -> Vec<Arc<Shared>> {
        let owner = intent.account;
        let wanted: BTreeSet<Allowance> = intent
            .grants
            .iter()
            .map(|grant| Allowance { owner, token: grant.token, spender: grant.spender })
            .collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds or waits for are let go, so that the map stays as small as what runs.
        all.retain(|_, shared| Arc::strong_count(shared) > 1 || Arc::strong_count(&shared.line) > 1);
        wanted.into_iter().map(|allowance| all.entry(allowance).or_default().clone()).collect()
    }
}

impl Spending {
    fn new(all: Vec<Arc<Shared>>) -> Self {
        for shared in &all {
            shared.spending.send_modify(|spending| *spending += 1);
        }
        Self(all)
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        for shared in &self.0 {
            shared.spending.send_modify(|spending| *spending -= 1);
        }
    }
}
