//! The order in which a reply is looked at.

use alloy_primitives::Bytes;

use super::{
    Content, Reply, Revert, Row, Verdict,
    reply::{Seen, Text},
    revert,
    row::{Class, Entry},
    table,
};
use crate::Result;

/// Decides what one reply means, by its content (V1).
///
/// The default knows the built-in table. It keeps nothing between calls.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    rows: Vec<Row>,
}

/// What a reply matched.
pub(super) struct Found<'s, 'a> {
    pub(super) class: Class,
    pub(super) by: By,
    text: &'s Text<'a>,
}

/// Whose row it was.
pub(super) enum By {
    /// The operator's, by its position.
    Operator(usize),
    /// A built-in one.
    BuiltIn(&'static Entry),
}

impl Classifier {
    /// A classifier that asks the operator's rows first, in their order, and then the built-in table.
    ///
    /// # Errors
    ///
    /// Where a row matches everything or almost everything, or not its own example. The message names the
    /// row by its position, counted from 1.
    pub fn with_rows(rows: Vec<Row>) -> Result<Self> {
        let rows = rows.into_iter().enumerate().map(|(i, row)| row.checked(i + 1)).collect::<Result<_>>()?;
        Ok(Self { rows })
    }

    /// What the reply means.
    ///
    /// The same body gets the same verdict under any HTTP status; the status decides only where the body
    /// says nothing. A revert in answer to a send is `Reverted` like any other: what it means for the
    /// transaction is for the sender to say.
    pub fn classify(&self, reply: &Reply<'_>) -> Verdict {
        if let Content::Result(raw) = reply.content {
            return match revert::in_result(reply.method, raw) {
                Some(data) => Verdict::Reverted(Revert { data, message: String::new() }),
                None => Verdict::Answer,
            };
        }
        let Some(seen) = Seen::new(reply) else { return Verdict::Answer };
        let bytes = seen.data.as_ref().and_then(revert::in_data);
        match self.find(&seen, bytes.as_ref()) {
            Some(found) => found.class.verdict(&seen, found.text, bytes),
            None => Verdict::Unclassified,
        }
    }

    /// Which row decided, whose wording it is and where that was seen: for logs and for operators who
    /// wonder. `None` for a result, and where no row knows the reply.
    pub fn explain(&self, reply: &Reply<'_>) -> Option<String> {
        let seen = Seen::new(reply)?;
        let bytes = seen.data.as_ref().and_then(revert::in_data);
        let found = self.find(&seen, bytes.as_ref())?;
        Some(match found.by {
            By::Operator(position) => format!("operator row {position}"),
            By::BuiltIn(entry) => {
                let wording = match entry.contains {
                    [] => "no known wording".to_owned(),
                    contains => format!("{:?}", contains.join(" … ")),
                };
                format!("{wording} ({}; {})", entry.client, entry.source)
            }
        })
    }

    /// Operator rows; the specific rows on the message, then on what `data` says; then the generic ones.
    pub(super) fn find<'s, 'a>(&self, seen: &'s Seen<'a>, bytes: Option<&Bytes>) -> Option<Found<'s, 'a>> {
        for (i, row) in self.rows.iter().enumerate() {
            if let Some(text) = seen.texts().find(|text| row.matches(seen, text)) {
                return Some(Found { class: row.class, by: By::Operator(i + 1), text });
            }
        }
        [table::SPECIFIC, table::GENERIC].into_iter().find_map(|table| {
            seen.texts().find_map(|text| {
                let entry = table.iter().copied().flatten().find(|entry| entry.matches(seen, text, bytes))?;
                Some(Found { class: entry.class, by: By::BuiltIn(entry), text })
            })
        })
    }
}
