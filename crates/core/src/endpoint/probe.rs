//! Probes of history (E6): what endpoints are asked about the past when they are first identified, and what their
//! answers come to. A question is about something known, so that an endpoint that lacks it is told apart.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256};

use super::EndpointId;
use crate::failure::DataKind;

/// The most questions that one endpoint is asked; mostly there are five.
pub const MOST_QUESTIONS: usize = 12;
/// How far below the head an endpoint without old data is asked. The least is inside the 128 blocks of state that most
/// nodes keep, by more than a head moves meanwhile; what lies below the second is read as of the deep; the others are
/// what pruned nodes are mostly set to.
const DEPTHS: [u64; 4] = [96, 256, 10_000, 90_000];

/// What is asked of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The block at a height.
    Block {
        /// Which.
        height: u64,
        /// How much of it.
        detail: Detail,
    },
    /// How many transactions an account had sent by the end of a block.
    Count {
        /// The account.
        sender: Address,
        /// The block.
        height: u64,
    },
    /// The receipt of a transaction.
    Receipt {
        /// Which.
        transaction: B256,
        /// The block that holds it.
        height: u64,
    },
    /// The logs of a block that has some.
    Logs {
        /// Which.
        height: u64,
    },
}

/// How much of a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Without its transactions.
    Header,
    /// With them.
    Transactions,
}

/// What an endpoint said to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The block is there.
    Block(Seen),
    /// So many transactions.
    Count(u64),
    /// What was asked for is there.
    There,
    /// It has nothing of the kind, and does not say why.
    Nothing,
    /// It no longer holds this; it may have named the lowest block that it does.
    Refused {
        /// The lowest block.
        oldest: Option<u64>,
    },
    /// Something else, from which nothing follows.
    Unclear,
}

/// What a block shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// A transaction in it.
    pub transaction: Option<Landmark>,
    /// What its bloom says of its logs.
    pub logs: Logs,
}

/// A transaction that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmark {
    /// Its hash.
    pub hash: B256,
    /// Who sent it.
    pub sender: Address,
    /// Its nonce.
    pub nonce: u64,
}

/// Whether a block is known to hold logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// It holds some.
    Some,
    /// It holds none, or nothing says so.
    Unknown,
}

/// What a probe has found: to be told to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whose history.
    pub id: EndpointId,
    /// Of which kind.
    pub kind: DataKind,
    /// At which height.
    pub height: u64,
    /// What of it.
    pub found: Found,
}

/// What was found at a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is held.
    Held,
    /// It is not.
    Missing {
        /// The lowest block that it says it holds.
        oldest: Option<u64>,
    },
}

/// What has been asked and found, over all endpoints of a pool.
#[derive(Debug, Default)]
pub struct Probes {
    /// Those to be probed.
    due: BTreeSet<EndpointId>,
    /// Those that have been.
    done: BTreeSet<EndpointId>,
    asked: BTreeMap<EndpointId, Vec<(Question, Outcome)>>,
    /// The heights at which something known is looked for.
    candidates: BTreeSet<u64>,
    /// What the blocks there hold.
    seen: BTreeMap<u64, Seen>,
    /// The lowest height at which an endpoint has answered rightly.
    lowest: BTreeMap<DataKind, u64>,
    /// Wrong answers to questions that no endpoint has answered rightly yet.
    open: Vec<(EndpointId, DataKind, u64)>,
    /// Kinds of which it was said that their probe is suspect.
    suspected: BTreeSet<DataKind>,
}

/// What the answer to a question came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Held,
    Lacked,
    Unclear,
}

impl Probes {
    /// An endpoint was identified. It is probed once.
    pub fn identified(&mut self, id: EndpointId) {
        if !self.done.contains(&id) {
            self.due.insert(id);
        }
    }

    /// Takes those that are due, and that may be asked now.
    pub fn take_due(&mut self, may: impl Fn(EndpointId) -> bool) -> Vec<EndpointId> {
        self.due.extract_if(.., |id| may(*id)).collect()
    }

    /// The endpoint has answered all that it is asked. One that has not is asked the rest when it is due again.
    pub fn ended(&mut self, id: EndpointId) {
        self.done.insert(id);
        self.asked.remove(&id);
    }

    /// The next question in search of something known, among endpoints with their heads, and whom to ask; `None` when
    /// enough is known, or nobody can tell more. The lowest height comes first, at one endpoint after another.
    pub fn search(&mut self, among: &[(EndpointId, u64)]) -> Option<(EndpointId, Question)> {
        if self.candidates.is_empty() {
            let head = among.iter().map(|(_, head)| *head).max()?;
            // The oldest is worth most, but old blocks are often empty.
            self.candidates
                .extend([1, head / 64, head / 8, head / 2].into_iter().filter(|at| (1..=head).contains(at)));
        }
        let transaction = self.landmark();
        if transaction.is_some() && self.block_with_logs().is_some() {
            return None;
        }
        let detail = if transaction.is_some() { Detail::Header } else { Detail::Transactions };
        let unseen = self.candidates.iter().filter(|height| !self.seen.contains_key(height));
        unseen.copied().find_map(|height| {
            let may_tell = |(id, head): &&(EndpointId, u64)| {
                let asked = self.asked(*id);
                height <= *head
                    && self.outcome_at(*id, DataKind::Blocks, height).is_none()
                    && !asked.iter().any(|(_, outcome)| *outcome == Outcome::Unclear)
            };
            let (id, _) = among.iter().find(may_tell)?;
            Some((*id, Question::Block { height, detail }))
        })
    }

    /// The next question to an endpoint whose head is here, about what is known; `None` when there is no more.
    pub fn next(&self, id: EndpointId, head: u64) -> Option<Question> {
        if self.asked(id).len() >= MOST_QUESTIONS {
            return None;
        }
        let first_block = self.seen.keys().next().copied();
        let block = |height: u64| Question::Block { height, detail: Detail::Header };
        let whole = first_block.map(block);
        let [count, before, receipt, higher] = match self.landmark() {
            None => [None; 4],
            Some((at, known)) => {
                let count = |height| Question::Count { sender: known.sender, height };
                let outcome = self.outcome_at(id, DataKind::State, at);
                let before = (outcome == Some(Outcome::Held)).then(|| count(at - 1));
                let receipt = Question::Receipt { transaction: known.hash, height: at };
                [
                    Some(count(at)),
                    before,
                    Some(receipt),
                    self.higher(id, DataKind::State, at, head).map(count),
                ]
            }
        };
        let logs = self.block_with_logs().map(|height| Question::Logs { height });
        let higher_block = first_block.and_then(|at| self.higher(id, DataKind::Blocks, at, head)).map(block);
        // Above its own head nothing that it says is about depth.
        let open = |question: &Question| {
            question.height() <= head && self.outcome_at(id, question.kind(), question.height()).is_none()
        };
        [whole, count, before, receipt, logs, higher, higher_block].into_iter().flatten().find(open)
    }

    /// Tells what an endpoint said to a question, and returns what follows. A wrong answer counts once an endpoint has
    /// given a right one: until then the question may be at fault. A refusal that says what it is counts at once, and so
    /// does a block that is not there, because every height below the head has one.
    pub fn told(&mut self, id: EndpointId, question: Question, said: Said) -> Vec<Finding> {
        let (kind, height) = (question.kind(), question.height());
        let outcome = self.outcome(&question, said);
        self.asked.entry(id).or_default().push((question, outcome));
        if let (Question::Block { .. }, Said::Block(seen), true) =
            (question, said, self.candidates.contains(&height))
        {
            self.seen.entry(height).or_insert(seen);
        }
        let missing = |id, height, oldest| Finding { id, kind, height, found: Found::Missing { oldest } };
        match outcome {
            Outcome::Unclear => Vec::new(),
            Outcome::Lacked => match (question, said) {
                (_, Said::Refused { oldest }) => vec![missing(id, height, oldest)],
                (Question::Block { .. }, _) => vec![missing(id, height, None)],
                (Question::Count { .. } | Question::Receipt { .. } | Question::Logs { .. }, _)
                    if self.lowest.get(&kind).is_some_and(|lowest| *lowest <= height) =>
                {
                    vec![missing(id, height, None)]
                }
                (Question::Count { .. } | Question::Receipt { .. } | Question::Logs { .. }, _) => {
                    self.open.push((id, kind, height));
                    Vec::new()
                }
            },
            // It may be the latest count, at whatever height: the block before tells.
            Outcome::Held
                if kind == DataKind::State && self.landmark().is_some_and(|(at, _)| at == height) =>
            {
                Vec::new()
            }
            Outcome::Held => {
                let lowest = self.lowest.entry(kind).or_insert(height);
                *lowest = (*lowest).min(height);
                let confirmed = self.open.extract_if(.., |(_, open, at)| *open == kind && *at >= height);
                let confirmed = confirmed.map(|(id, _, at)| missing(id, at, None));
                let held = Finding { id, kind, height, found: Found::Held };
                std::iter::once(held).chain(confirmed).collect()
            }
        }
    }

    /// The kinds of which every endpoint that was asked has failed a question: the probe is suspect. Each is named once.
    pub fn suspects(&mut self) -> Vec<DataKind> {
        let open: BTreeSet<DataKind> = self.open.iter().map(|(_, kind, _)| *kind).collect();
        open.into_iter().filter(|kind| self.suspected.insert(*kind)).collect()
    }

    fn outcome(&self, question: &Question, said: Said) -> Outcome {
        let right = |right| if right { Outcome::Held } else { Outcome::Lacked };
        match (question, said) {
            (_, Said::Nothing | Said::Refused { .. }) => Outcome::Lacked,
            (Question::Block { .. }, Said::Block(_))
            | (Question::Receipt { .. } | Question::Logs { .. }, Said::There) => Outcome::Held,
            (Question::Count { height, .. }, Said::Count(count)) => match self.landmark() {
                // The transaction is in none of the blocks before its own, and in all from there on.
                Some((at, known)) => right((*height >= at) == (count > known.nonce)),
                None => Outcome::Unclear,
            },
            (_, Said::Unclear | Said::Block(_) | Said::Count(_) | Said::There) => Outcome::Unclear,
        }
    }

    fn asked(&self, id: EndpointId) -> &[(Question, Outcome)] {
        self.asked.get(&id).map_or(&[], Vec::as_slice)
    }

    fn outcome_at(&self, id: EndpointId, kind: DataKind, height: u64) -> Option<Outcome> {
        let found = self
            .asked(id)
            .iter()
            .find(|(question, _)| (question.kind(), question.height()) == (kind, height));
        found.map(|(_, outcome)| *outcome)
    }

    /// Where to ask an endpoint that lacks what is at a height: in the middle between the highest that it lacks and the
    /// lowest that it holds.
    fn higher(&self, id: EndpointId, kind: DataKind, lacked: u64, head: u64) -> Option<u64> {
        if self.outcome_at(id, kind, lacked) != Some(Outcome::Lacked) {
            return None;
        }
        let of = |wanted: Outcome| {
            let asked = self.asked(id).iter().filter(move |(question, found)| {
                question.kind() == kind && question.height() >= lacked && *found == wanted
            });
            asked.map(|(question, _)| question.height())
        };
        let between = of(Outcome::Lacked).max()? + 1..of(Outcome::Held).min().unwrap_or(head);
        let heights: Vec<u64> = DEPTHS
            .iter()
            .filter_map(|depth| head.checked_sub(*depth))
            .filter(|at| between.contains(at))
            .collect();
        heights.get(heights.len() / 2).copied()
    }

    /// The oldest transaction that is known, and its block.
    fn landmark(&self) -> Option<(u64, Landmark)> {
        self.seen.iter().find_map(|(height, seen)| Some((*height, seen.transaction?)))
    }

    fn block_with_logs(&self) -> Option<u64> {
        self.seen.iter().find(|(_, seen)| seen.logs == Logs::Some).map(|(height, _)| *height)
    }
}

impl Question {
    /// The kind of data that it asks for.
    pub const fn kind(&self) -> DataKind {
        match self {
            Self::Block { .. } => DataKind::Blocks,
            Self::Count { .. } => DataKind::State,
            Self::Receipt { .. } => DataKind::Transactions,
            Self::Logs { .. } => DataKind::Logs,
        }
    }

    /// The height that it asks at.
    pub const fn height(&self) -> u64 {
        match self {
            Self::Block { height, .. }
            | Self::Count { height, .. }
            | Self::Receipt { height, .. }
            | Self::Logs { height } => *height,
        }
    }
}

#[cfg(test)]
mod tests;
