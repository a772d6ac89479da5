//! A server and the processes that it has started.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::signal;

/// Kills a process and its children, none of which sees another die: they would finish what they are at.
///
/// Where there is no `/proc`, only the process itself is killed; its children end when they notice.
pub(super) fn kill(pid: u32) {
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    // Once it stands still it starts no more children.
    while status(pid).is_some_and(|status| !matches!(status.state, 'T' | 'Z' | 'X'))
        && begun.elapsed() < Duration::from_secs(5)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let children = children(pid);
    for child in &children {
        signal(*child, Signal::KILL);
    }
    signal(pid, Signal::KILL);
    // One that still lies in the shared memory would keep the next server from starting.
    while children.iter().any(|child| status(*child).is_some_and(|status| !matches!(status.state, 'Z' | 'X')))
        && begun.elapsed() < Duration::from_secs(10)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Status {
    state: char,
    parent: u32,
}

fn children(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|other| status(*other).is_some_and(|status| status.parent == pid))
        .collect()
}

/// `1234 (a name) S 1 ...`: the state and the parent come after the last parenthesis.
fn status(pid: u32) -> Option<Status> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = line.rsplit_once(')')?.1.split_whitespace();
    Some(Status { state: words.next()?.chars().next()?, parent: words.next()?.parse().ok()? })
}
