//! One life of the process: from its start until it is killed, or comes to its end.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use alloy::primitives::keccak256;
use anyhow::Context;
use backstay_testkit::{Action, Call, Fleet, Mark, Program, Rule};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};
use serde::Serialize;
use tokio::{process::Command, time::Instant};

use super::{
    child::{CHILD, Orders, Told},
    point::{Calls, Point, SEND, Side, Trap},
};

/// How long one life may take.
const LIFE: Duration = Duration::from_secs(60);
/// How long ago at most an answer has left when the process is killed after it.
const MOMENT: Duration = Duration::from_millis(10);
/// How much of what a process that failed said is kept, in bytes.
const LAST_WORDS: usize = 6_000;

/// What is wrong with the endpoints while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wires {
    /// Nothing.
    Sound,
    /// The first endpoint forwards sends and loses the replies.
    LosesReplies,
}

/// How a life ended.
#[derive(Clone, Debug)]
pub enum End {
    /// It was killed.
    Killed,
    /// It came to its end.
    Told(Told),
    /// It gave up; what it said.
    Failed(String),
    /// It did not come to an end in time, and was killed for that.
    Stuck,
}

/// One life.
#[derive(Clone, Debug)]
pub struct Life {
    /// How it ended.
    pub end: End,
    /// What it asked the endpoints for is from here on in the fleet's records.
    pub begun: Mark,
    /// How long it took.
    pub took: Duration,
    /// What the endpoints were asked.
    pub calls: Calls,
}

/// Lets the process live once: until `point`, where there is one and it gets there.
///
/// # Errors
///
/// When it cannot be started.
pub async fn live(
    fleet: &Fleet,
    wires: Wires,
    orders: &mut Orders,
    point: Option<&Point>,
) -> anyhow::Result<Life> {
    orders.kill = point.filter(|point| point.is_of_journal()).cloned();
    let trap = Arc::new(Trap::at(point.filter(|point| !point.is_of_journal()).cloned()));
    let living = Living::default();
    for (index, (name, _)) in fleet.urls().iter().enumerate() {
        let wires = if index == 0 { wires } else { Wires::Sound };
        fleet.endpoint(name).set(program(wires, &trap, &living));
    }
    let (begun, since) = (fleet.mark(), Instant::now());
    let end = run(orders, &living).await;
    // It is as dead for the endpoints, whatever came of it.
    living.set(None);
    Ok(Life { end: end?, begun, took: since.elapsed(), calls: trap.calls() })
}

async fn run(orders: &Orders, living: &Living) -> anyhow::Result<End> {
    use std::os::unix::process::ExitStatusExt;

    let process = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(serde_json::to_string(orders)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the child cannot be started")?;
    let id = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    living.set(Some(id.context("the child has no process id")?));
    let Ok(output) = tokio::time::timeout(LIFE, process.wait_with_output()).await else {
        return Ok(End::Stuck);
    };
    let output = output?;
    if output.status.signal() == Some(Signal::KILL.as_raw()) {
        return Ok(End::Killed);
    }
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        let line = told.lines().last().unwrap_or_default();
        return Ok(End::Told(serde_json::from_str(line).with_context(|| format!("the child said {line}"))?));
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let from = words.ceil_char_boundary(words.len().saturating_sub(LAST_WORDS));
    Ok(End::Failed(words[from..].trim().to_owned()))
}

/// The program of an endpoint that kills the process where the trap springs.
fn program(wires: Wires, trap: &Arc<Trap>, living: &Living) -> Program {
    let springs = |side: Side| {
        let trap = trap.clone();
        move |call: &Call| trap.springs(&format!("rpc.{}", call.method), side)
    };
    let kill = |living: &Living| {
        let living = living.clone();
        move |_: &Call| living.kill()
    };
    let hooked = |rule: Rule| {
        let (answered, after) = (springs(Side::Answered), springs(Side::After));
        let (now, later) = (living.clone(), living.clone());
        let strike = move |call: &Call| {
            if answered(call) {
                now.kill();
            }
        };
        rule.after_reply(strike).after_answer(move |call| {
            if after(call) {
                later.kill_in(moment(&call.seq.to_string(), MOMENT));
            }
        })
    };
    // The process has sent it, and it gets nowhere.
    let before = Rule::any().named("killed before").when(springs(Side::Before)).before(kill(living));
    let program = Program::new().rule(before.then(Action::DropBefore));
    let program = match wires {
        Wires::Sound => program,
        Wires::LosesReplies => {
            let lost = Rule::on(SEND.trim_start_matches("rpc.")).named("replies to sends");
            program.rule(hooked(lost.then(Action::LoseReply)))
        }
    };
    program.rule(hooked(Rule::any()))
}

/// How long a process goes on: something else for each process and each `what`.
pub(super) fn moment(what: &str, at_most: Duration) -> Duration {
    let digest = keccak256(format!("{} {what}", std::process::id()));
    at_most * u32::from(digest[0]) / u32::from(u8::MAX)
}

/// The process that lives now, for the endpoints to kill.
#[derive(Clone, Debug, Default)]
struct Living(Arc<Mutex<Option<Pid>>>);

impl Living {
    fn set(&self, pid: Option<Pid>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }

    /// Kills it, and returns when it does nothing any more.
    fn kill(&self) {
        let pid = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(pid) = pid else { return };
        // Where it is gone already, it is not for want of being killed.
        let _ = kill_process(pid, Signal::KILL);
        // It stays to be waited for by its owner.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), ended).is_err_and(|error| error == Errno::INTR) {}
    }

    fn kill_in(&self, time: Duration) {
        let living = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            living.kill();
        });
    }
}

/// Kills this very process.
pub(super) fn kill_self() {
    let _ = kill_process(rustix::process::getpid(), Signal::KILL);
    // The signal may take a moment; nothing more may happen in it.
    loop {
        std::thread::park();
    }
}
