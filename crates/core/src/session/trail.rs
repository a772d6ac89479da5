//! What a session did, as a timeline for people and as data (S9).

use std::{fmt, time::Duration};

use alloy_primitives::TxHash;
use serde::{Deserialize, Serialize};

use crate::units::{BlockRef, EndpointName};

/// The events of one session, oldest first. `Display` prints a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    events: Vec<Event>,
    /// Events that were left out of the middle, so that a session that waits for hours stays small.
    #[serde(default)]
    left_out: u64,
}

/// How many events are kept: the first half as they came, the second half the newest.
const KEPT: usize = 4096;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, since the session began.
    pub at: Duration,
    /// The step of the session that it belongs to.
    pub step: String,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// A call to an endpoint.
    Call {
        /// Which endpoint.
        endpoint: EndpointName,
        /// The method.
        method: String,
        /// The block it was asked at, where it was fenced.
        height: Option<u64>,
        /// What it came to.
        verdict: String,
        /// How long it took; for repeated calls, the longest.
        took: Duration,
        /// How many times in a row.
        times: u32,
    },
    /// The session is pinned to another endpoint.
    Pinned {
        /// The endpoint before.
        from: Option<EndpointName>,
        /// The endpoint from now on.
        to: EndpointName,
        /// Why.
        why: String,
    },
    /// The fence rose: nothing below this block is believed from now on.
    Fenced {
        /// The block.
        block: BlockRef,
    },
    /// Bytes were signed and written down.
    Signed {
        /// Their nonce.
        nonce: u64,
        /// Their hash.
        hash: TxHash,
    },
    /// A recovery round began.
    Round {
        /// Which, from 1.
        round: u32,
        /// The flow.
        flow: String,
        /// What it saw.
        diagnosis: String,
        /// What it does about it.
        plan: Vec<String>,
    },
    /// Something worth a line.
    Note {
        /// The line.
        text: String,
    },
}

impl Trail {
    /// Adds an event. A call that repeats the one before it is counted, not added: a receipt wait would
    /// drown everything else.
    pub fn push(&mut self, event: Event) {
        if let (
            What::Call { endpoint, method, height, verdict, took, .. },
            Some(Event {
                step,
                what: What::Call { endpoint: e, method: m, height: h, verdict: v, took: longest, times },
                ..
            }),
        ) = (&event.what, self.events.last_mut())
            && (&event.step, endpoint, method, height, verdict) == (step, e, m, h, v)
        {
            *times += 1;
            *longest = (*longest).max(*took);
            return;
        }
        if self.events.len() == KEPT {
            self.events.remove(KEPT / 2);
            self.left_out += 1;
        }
        self.events.push(event);
    }

    /// The events, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How often the session moved from one endpoint to another.
    pub fn pin_moves(&self) -> usize {
        let moved = |event: &&Event| matches!(&event.what, What::Pinned { from: Some(_), .. });
        self.events.iter().filter(moved).count()
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        let times = |event: &Event| match event.what {
            What::Call { times, .. } => u64::from(times),
            _ => 0,
        };
        self.events.iter().map(times).sum()
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint_width = self.widest(|what| match what {
            What::Call { endpoint, .. } => Some(endpoint.as_str().len()),
            _ => None,
        });
        let method_width = self.widest(|what| match what {
            What::Call { method, .. } => Some(method.len()),
            _ => None,
        });
        let step_width = self.events.iter().map(|event| event.step.chars().count()).max().unwrap_or(0);
        for (index, event) in self.events.iter().enumerate() {
            if index == KEPT / 2 && self.left_out > 0 {
                writeln!(f, "           ... {} more ...", self.left_out)?;
            }
            let step = &event.step;
            write!(f, "{:>8.3}s  {step:step_width$}  ", event.at.as_secs_f64())?;
            match &event.what {
                What::Call { endpoint, method, height, verdict, took, times } => {
                    let height = height.map_or_else(|| "-".to_owned(), |height| format!("@{height}"));
                    write!(f, "{endpoint:endpoint_width$}  {method:method_width$}  {height:>8}  {verdict}")?;
                    match times {
                        1 => write!(f, "  ({} ms)", took.as_millis())?,
                        times => write!(f, "  x{times} (at most {} ms)", took.as_millis())?,
                    }
                }
                What::Pinned { from: None, to, why } => write!(f, "PIN    {to}: {why}")?,
                What::Pinned { from: Some(from), to, why } => write!(f, "PIN    {from} -> {to}: {why}")?,
                What::Fenced { block } => write!(f, "FENCE  {block}")?,
                What::Signed { nonce, hash } => write!(f, "SIGNED nonce {nonce}, {hash}")?,
                What::Round { round, flow, diagnosis, plan } => {
                    write!(f, "ROUND  {round}: {flow}: {diagnosis}; plan: {}", plan.join(", "))?;
                }
                What::Note { text } => write!(f, "{text}")?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Trail {
    fn widest(&self, width: impl Fn(&What) -> Option<usize>) -> usize {
        self.events.iter().filter_map(|event| width(&event.what)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;
    use expect_test::expect;

    use super::*;

    fn call(at: u64, verdict: &str) -> Event {
        Event {
            at: Duration::from_millis(at),
            step: "approve".into(),
            what: What::Call {
                endpoint: "alpha".into(),
                method: "eth_getTransactionReceipt".into(),
                height: None,
                verdict: verdict.into(),
                took: Duration::from_millis(at),
                times: 1,
            },
        }
    }

    #[test]
    fn it_reads_as_a_timeline() {
        let mut trail = Trail::default();
        let block = BlockRef { number: 7, hash: B256::repeat_byte(0xab) };
        let note = |what| Event { at: Duration::from_millis(40), step: "approve".into(), what };
        for event in [
            call(1, "null"),
            call(2, "null"),
            call(3, "answer"),
            note(What::Pinned { from: None, to: "alpha".into(), why: "first in the config".into() }),
            note(What::Pinned {
                from: Some("alpha".into()),
                to: "beta".into(),
                why: "served the receipt".into(),
            }),
            note(What::Fenced { block }),
        ] {
            trail.push(event);
        }
        assert_eq!((trail.calls(), trail.pin_moves()), (3, 1));
        // Without the indentation, which expect-test takes off the other side.
        let printed = trail.to_string().replace("   0.0", "0.0");
        expect![[r#"
            0.001s  approve  alpha  eth_getTransactionReceipt         -  null  x2 (at most 2 ms)
            0.003s  approve  alpha  eth_getTransactionReceipt         -  answer  (3 ms)
            0.040s  approve  PIN    alpha: first in the config
            0.040s  approve  PIN    alpha -> beta: served the receipt
            0.040s  approve  FENCE  7 (0xabababab)
        "#]]
        .assert_eq(&printed);
    }
}
