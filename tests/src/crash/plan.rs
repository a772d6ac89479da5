//! Which runs there are: from what was crossed by a process that nobody killed.

use std::{fmt, str::FromStr};

use alloy::primitives::keccak256;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    child::Approach,
    life::Wires,
    point::{Calls, Point, SEND, Side},
};

/// The word for a payment in a plan.
const PAYMENT: &str = "payment";
/// The word for an intent that is not sent again.
const FIND: &str = "find";
/// How many points that depend on timing are chosen of each recording, unless all are.
const OTHERS: usize = 6;
/// One run of so many is killed again after its restart.
const TWICE: u64 = 3;
/// In one run of so many, the restarted process has another intent to send first: what it signs anew for the same nonce
/// would else be the same bytes, mostly.
const ACCOMPANIED: u64 = 2;
/// In one run of so many, the restarted process does not send its intent again: it goes on by itself.
const FOUND: u64 = 2;

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A file.
    Sqlite,
    /// A schema of a database that all runs share.
    Postgres,
}

/// What stays the same over many runs: where the journal is, and what is wrong with the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The journal.
    pub backend: Backend,
    /// The endpoints.
    pub wires: Wires,
}

/// One run: a process that is killed at one point after the other, one in each life, and then lives to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Plan {
    /// Where.
    pub setting: Setting,
    /// When it is killed. None: it is not.
    pub points: Vec<Point>,
    /// What a restarted process does besides.
    pub company: Company,
    /// How a restarted process gets at its intent.
    pub approach: Approach,
}

/// What a restarted process does besides going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Nothing.
    Alone,
    /// It sends another intent of the account first, so that the two meet on one nonce line.
    Payment,
}

/// How many of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// All points that every process comes to, which are those of the journal and of sends, and a few of the others.
    Default,
    /// All boundaries.
    Full,
}

/// What one process crossed that nobody killed.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Where.
    pub setting: Setting,
    /// Its writes and its requests.
    pub calls: Calls,
}

impl Setting {
    /// All there are.
    pub const ALL: [Self; 4] = [
        Self { backend: Backend::Sqlite, wires: Wires::Sound },
        Self { backend: Backend::Sqlite, wires: Wires::LosesReplies },
        Self { backend: Backend::Postgres, wires: Wires::Sound },
        Self { backend: Backend::Postgres, wires: Wires::LosesReplies },
    ];
}

impl Backend {
    /// Its name in a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

impl Wires {
    /// Their name in a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::LosesReplies => "loses-replies",
        }
    }
}

impl Plan {
    /// A run in which nobody is killed.
    pub const fn undisturbed(setting: Setting) -> Self {
        Self { setting, points: Vec::new(), company: Company::Alone, approach: Approach::Send }
    }

    /// The kind of its first point, in the words of the table.
    pub fn kind(&self) -> &'static str {
        self.points.first().map_or("not killed", Point::kind)
    }
}

impl Point {
    /// Whether every life of a process that starts from nothing gets here, however its timing is. The claim is renewed
    /// and receipts are asked for by time.
    pub fn is_sure(&self) -> bool {
        let once = self.nth == 1 || !matches!(self.boundary.as_str(), "journal.claim");
        if self.is_of_journal() { once } else { self.boundary == SEND }
    }
}

/// The runs for some recordings. The same seed and the same recordings make the same runs.
pub fn plans(recordings: &[Recording], depth: Depth, seed: u64) -> Vec<Plan> {
    let mut plans = Vec::new();
    for recording in recordings {
        let all = points(&recording.calls);
        let (chosen, mut others): (Vec<Point>, Vec<Point>) = all.into_iter().partition(Point::is_sure);
        others.sort_by_cached_key(|point| drawn(seed, recording.setting, &point.to_string()));
        let kept = match depth {
            Depth::Default => OTHERS,
            Depth::Full => usize::MAX,
        };
        let points = chosen.into_iter().chain(others.into_iter().take(kept));
        plans.extend(points.map(|point| plan(recording.setting, point, seed)));
    }
    plans
}

/// Every point that was crossed.
fn points(calls: &Calls) -> Vec<Point> {
    let sides = |boundary: &str| match boundary.starts_with("journal.") {
        true => Side::OF_JOURNAL,
        false => Side::OF_ENDPOINTS,
    };
    let crossed = calls.iter().flat_map(|(boundary, times)| (1..=*times).map(move |nth| (boundary, nth)));
    crossed.flat_map(|(boundary, nth)| sides(boundary).map(|side| Point::new(boundary, nth, side))).collect()
}

fn plan(setting: Setting, point: Point, seed: u64) -> Plan {
    let name = point.to_string();
    let mut points = vec![point];
    if drawn(seed, setting, &format!("{name} again?")).is_multiple_of(TWICE) {
        points.push(again(drawn(seed, setting, &format!("{name} again"))));
    }
    let company = match drawn(seed, setting, &format!("{name} alone?")).is_multiple_of(ACCOMPANIED) {
        true => Company::Payment,
        false => Company::Alone,
    };
    let approach = match drawn(seed, setting, &format!("{name} how?")).is_multiple_of(FOUND) {
        true => Approach::Find,
        false => Approach::Send,
    };
    Plan { setting, points, company, approach }
}

/// A point among the first that a resumed life comes to, whichever they are.
fn again(drawn: u64) -> Point {
    let (boundary, nth, side) = match drawn % 8 {
        0 => ("journal.*", 1, Side::Before),
        1 => ("journal.*", 1, Side::After),
        2 => ("journal.*", 2, Side::After),
        3 => ("journal.append.*", 1, Side::Before),
        4 => ("journal.append.*", 1, Side::After),
        5 => ("journal.append.*", 2, Side::After),
        6 => (SEND, 1, Side::Before),
        _ => (SEND, 1, Side::Answered),
    };
    Point::new(boundary, nth, side)
}

/// A number that depends on all of these and looks like chance.
fn drawn(seed: u64, setting: Setting, what: &str) -> u64 {
    let digest = keccak256(format!("{seed} {setting} {what}"));
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.backend.name(), self.wires.name())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.setting)?;
        for point in &self.points {
            write!(f, "+{point}")?;
        }
        match self.company {
            Company::Alone => {}
            Company::Payment => write!(f, "+{PAYMENT}")?,
        }
        match self.approach {
            Approach::Send => Ok(()),
            Approach::Find => write!(f, "+{FIND}"),
        }
    }
}

impl FromStr for Plan {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split('+');
        let setting = parts.next().unwrap_or_default();
        let known = Setting::ALL.into_iter().find(|known| known.to_string() == setting);
        let setting = known.with_context(|| {
            let all = Setting::ALL.map(|setting| setting.to_string()).join(", ");
            format!("`{text}` is no run: it begins with one of {all}")
        })?;
        let mut plan = Self::undisturbed(setting);
        for part in parts {
            match part {
                PAYMENT => plan.company = Company::Payment,
                FIND => plan.approach = Approach::Find,
                point => plan.points.push(point.parse()?),
            }
        }
        let restarted = plan.company == Company::Payment || plan.approach == Approach::Find;
        ensure!(
            !restarted || !plan.points.is_empty(),
            "`{PAYMENT}` and `{FIND}` are for a restarted process: name a point to kill it at"
        );
        Ok(plan)
    }
}

impl TryFrom<String> for Plan {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<Plan> for String {
    fn from(plan: Plan) -> Self {
        plan.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(setting: Setting) -> Recording {
        let calls = [("journal.open", 1), ("journal.append.submitted", 2), (SEND, 2), ("rpc.eth_call", 30)];
        Recording { setting, calls: calls.map(|(name, times)| (name.to_owned(), times)).into() }
    }

    #[test]
    fn every_write_and_send_is_a_point_and_some_of_the_rest() {
        let recordings = Setting::ALL.map(recording);
        let default = plans(&recordings, Depth::Default, 1);
        assert_eq!(default.len(), Setting::ALL.len() * (3 * 3 + 2 * 3 + OTHERS));
        let full = plans(&recordings, Depth::Full, 1);
        assert_eq!(full.len(), Setting::ALL.len() * (3 * 3 + 2 * 3 + 30 * 3));
        for plan in &default {
            assert!(full.contains(plan), "{plan}");
        }
        assert_eq!(default, plans(&recordings, Depth::Default, 1));
        assert_ne!(default, plans(&recordings, Depth::Default, 2));
        let some: [fn(&Plan) -> bool; 3] = [
            |plan| plan.points.len() == 2,
            |plan| plan.company == Company::Payment,
            |plan| plan.approach == Approach::Find,
        ];
        for some in some {
            assert!(full.iter().any(some) && !full.iter().all(some));
        }
    }

    #[test]
    fn a_run_is_written_as_it_is_read() {
        for plan in plans(&Setting::ALL.map(recording), Depth::Full, 7) {
            assert_eq!(plan.to_string().parse::<Plan>().expect("it is a run"), plan);
        }
        for (text, why) in [
            ("oracle/sound", "begins with one of sqlite/sound"),
            ("sqlite/sound+payment", "for a restarted process"),
            ("sqlite/sound+find", "for a restarted process"),
            ("sqlite/sound+journal.open", "is no point"),
        ] {
            let error = text.parse::<Plan>().expect_err("it is none").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
