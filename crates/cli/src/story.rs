//! An intent as its records tell it.

use std::time::SystemTime;

use backstay::journal::{Entry, IntentState, Stored};

use crate::tell::{Told, tell};

/// What happened to an intent, in order.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) lines: Vec<Line>,
    /// What the records add up to: all of them, or those before the one that does not fit.
    pub(crate) state: Option<IntentState>,
    /// Why they do not add up, where they do not.
    pub(crate) problem: Option<String>,
}

/// One record.
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) record: u64,
    /// When it was written, by its writer's clock.
    pub(crate) at: SystemTime,
    pub(crate) told: Told,
}

impl Story {
    pub(crate) fn of(stored: &Stored) -> Self {
        let mut story = Self::default();
        for entry in &stored.entries {
            story.add(entry);
        }
        story
    }

    /// Adds a record, and returns how it is told.
    pub(crate) fn add(&mut self, entry: &Entry) -> &Told {
        let told = tell(&entry.record, self.state.as_ref());
        if self.problem.is_none() {
            let after = match &self.state {
                Some(state) => state.clone().next(&entry.record),
                None => IntentState::fold([&entry.record]),
            };
            match after {
                Ok(state) => self.state = Some(state),
                // It counts from 0, and the lines from 1.
                Err(error) => {
                    let record = error.at + 1;
                    self.problem =
                        Some(format!("record {record} does not follow from those before it: {}", error.why));
                }
            }
        }
        let record = self.lines.len() as u64 + 1;
        self.lines.push(Line { record, at: entry.at, told });
        &self.lines[record as usize - 1].told
    }
}
