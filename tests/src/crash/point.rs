//! Where a process is killed, and how its crossings are counted.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// A boundary that a process crosses, and which crossing of it: `journal.append.planned/1/after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Point {
    /// A call of the process: one of its journal, named after the last record where records are appended
    /// (`journal.append.planned`), or one to any endpoint (`rpc.eth_call`). A `*` at the end is any rest.
    pub boundary: String,
    /// Which crossing in one life of the process, from 1.
    pub nth: u64,
    /// Where in the call.
    pub side: Side,
}

/// Where in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Before anything is written; the request has reached the endpoint, and goes no further.
    Before,
    /// The journal writes: it has begun to up to 3 ms ago. Endpoints have no such side.
    Amid,
    /// The chain has the request and has answered, and the answer has not left the endpoint. Journals have no such
    /// side.
    Answered,
    /// What was written is durable; the answer has left the endpoint, up to 10 ms ago.
    After,
}

/// How often each call was made in one life.
pub type Calls = BTreeMap<String, u64>;

/// What the boundaries of sends begin with, and are.
pub(crate) const SEND: &str = "rpc.eth_sendRawTransaction";

impl Point {
    pub(crate) fn new(boundary: impl Into<String>, nth: u64, side: Side) -> Self {
        Self { boundary: boundary.into(), nth, side }
    }

    /// Whether the journal of the process is the one to kill it. The endpoints kill it otherwise.
    pub fn is_of_journal(&self) -> bool {
        self.boundary.starts_with("journal.")
    }

    /// What kind of point it is, in the words of the table.
    pub fn kind(&self) -> &'static str {
        match (self.is_of_journal(), self.boundary == SEND, self.side) {
            (true, _, Side::Before) => "before a write of the journal",
            (true, _, Side::Amid | Side::Answered) => "amid a write of the journal",
            (true, _, Side::After) => "after a write of the journal",
            (false, true, Side::Before | Side::Amid) => "before a send",
            (false, true, Side::Answered) => "send taken, reply not out",
            (false, true, Side::After) => "after the reply to a send",
            (false, false, Side::Before | Side::Amid) => "before another request",
            (false, false, Side::Answered) => "before another reply",
            (false, false, Side::After) => "after another reply",
        }
    }

    fn is_at(&self, boundary: &str, side: Side) -> bool {
        self.side == side
            && match self.boundary.strip_suffix('*') {
                Some(start) => boundary.starts_with(start),
                None => boundary == self.boundary,
            }
    }
}

impl Side {
    /// The sides of a call to the journal.
    pub(crate) const OF_JOURNAL: [Self; 3] = [Self::Before, Self::Amid, Self::After];
    /// The sides of a call to an endpoint.
    pub(crate) const OF_ENDPOINTS: [Self; 3] = [Self::Before, Self::Answered, Self::After];

    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Amid => "amid",
            Self::Answered => "answered",
            Self::After => "after",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.boundary, self.nth, self.side.name())
    }
}

impl FromStr for Point {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = || format!("`{text}` is no point; one is `journal.append.planned/1/after`");
        let [boundary, nth, side] = text.split('/').collect::<Vec<_>>()[..] else { bail!(wrong()) };
        let nth = nth.parse().ok().filter(|nth| *nth > 0).with_context(wrong)?;
        let sides = match boundary.split_once('.') {
            Some(("journal", _)) => Side::OF_JOURNAL,
            Some(("rpc", _)) => Side::OF_ENDPOINTS,
            Some(_) | None => bail!(wrong()),
        };
        let side = sides.into_iter().find(|known| known.name() == side).with_context(wrong)?;
        Ok(Self::new(boundary, nth, side))
    }
}

impl TryFrom<String> for Point {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<Point> for String {
    fn from(point: Point) -> Self {
        point.to_string()
    }
}

/// Counts what one life of a process crosses, and says where it is to be killed.
#[derive(Debug, Default)]
pub(crate) struct Trap {
    point: Option<Point>,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Crossings of the point.
    crossings: u64,
    calls: Calls,
}

impl Trap {
    /// A trap at this point; without one it only counts.
    pub(crate) fn at(point: Option<Point>) -> Self {
        Self { point, counted: Mutex::default() }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a crossing, and whether it is the one.
    pub(crate) fn springs(&self, boundary: &str, side: Side) -> bool {
        let mut counted = self.counted();
        if side == Side::Before {
            *counted.calls.entry(boundary.to_owned()).or_default() += 1;
        }
        let Some(point) = self.point.as_ref().filter(|point| point.is_at(boundary, side)) else {
            return false;
        };
        counted.crossings += 1;
        counted.crossings == point.nth
    }

    /// How often each call was made so far.
    pub(crate) fn calls(&self) -> Calls {
        self.counted().calls.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_written_as_it_is_read() {
        for text in ["journal.append.planned/1/amid", "rpc.eth_call/12/answered", "journal.*/2/before"] {
            assert_eq!(text.parse::<Point>().expect("it is a point").to_string(), text);
        }
        for text in ["", "journal.open", "journal.open/0/after", "journal.open/1/answered", "open/1/after"] {
            let error = text.parse::<Point>().expect_err("it is none").to_string();
            assert!(error.contains("journal.append.planned/1/after"), "{error}");
        }
    }

    #[test]
    fn a_trap_springs_once_at_the_crossing_that_it_is_set_to() {
        let trap = Trap::at(Some("journal.append.*/2/after".parse().expect("it is a point")));
        let life = ["open", "append.planned", "append.signed", "append.submitted"];
        let sprung: Vec<_> = life
            .into_iter()
            .flat_map(|call| [(call, Side::Before), (call, Side::After)])
            .filter(|(call, side)| trap.springs(&format!("journal.{call}"), *side))
            .collect();
        assert_eq!(sprung, [("append.signed", Side::After)]);
        assert_eq!(trap.calls().len(), 4);
    }
}
