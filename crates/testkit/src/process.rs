//! Child processes that do not outlive this one.

use std::{
    collections::VecDeque,
    fmt,
    io::{BufRead as _, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

/// How many lines of output are kept for error messages.
const KEPT_LINES: usize = 40;

/// What becomes of a child when this process ends without dropping anything.
pub(crate) enum Orphaned {
    /// It is killed.
    Killed,
    /// It is asked to quit, then killed, and its folder is removed.
    #[cfg(unix)]
    Removed {
        /// Its folder.
        folder: PathBuf,
    },
}

/// A child process, the threads that read what it writes, and the guard that outlives this process. It is killed when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    guard: Option<Child>,
    readers: Vec<JoinHandle<()>>,
    output: Output,
}

impl Process {
    /// Takes a child whose streams are piped. The functions are given its lines, and dropped at their end.
    pub(crate) fn adopt(
        mut child: Child,
        orphaned: Orphaned,
        stdout: impl FnMut(&str) + Send + 'static,
        stderr: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let guard = guard(child.id(), orphaned);
        let output = Output::default();
        let readers = [
            child.stdout.take().map(|stream| output.reader(stream, stdout)),
            child.stderr.take().map(|stream| output.reader(stream, stderr)),
        ];
        Self { child, guard, readers: readers.into_iter().flatten().collect(), output }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines that it wrote.
    pub(crate) fn output(&self) -> String {
        self.output.text()
    }

    /// Whether it has ended by itself.
    #[cfg(unix)]
    pub(crate) fn has_ended(&mut self) -> bool {
        // It cannot be waited for only when that was done already.
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, where it still runs, and waits until it and its output have ended.
    pub(crate) fn end(&mut self) {
        // The guard goes first: a process id is free for others once its process has been waited for. Its
        // failures, and those below, mean that the process has ended already.
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A process that waits for the end of this one, which closes the pipe however it ends, and then ends `pid`.
fn guard(pid: u32, orphaned: Orphaned) -> Option<Child> {
    if !cfg!(unix) {
        return None;
    }
    let mut command = Command::new("sh");
    match orphaned {
        Orphaned::Killed => {
            command.args(["-c", "read -r line; kill -9 \"$0\"", &pid.to_string()]);
        }
        #[cfg(unix)]
        Orphaned::Removed { folder } => {
            let script = "read -r line; kill -QUIT \"$0\"; tries=0; \
                while [ $tries -lt 50 ] && kill -0 \"$0\" 2>/dev/null; do sleep 0.1; tries=$((tries + 1)); done; \
                kill -9 \"$0\" 2>/dev/null; rm -rf \"$1\"";
            command.args(["-c", script, &pid.to_string()]).arg(folder);
        }
    }
    #[cfg(unix)]
    {
        // An interrupt from the keyboard ends the group of this process, but not the guard.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// The last lines of a process.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<VecDeque<String>>>);

impl Output {
    /// A thread that reads a stream to its end.
    fn reader(
        &self,
        stream: impl Read + Send + 'static,
        mut heard: impl FnMut(&str) + Send + 'static,
    ) -> JoinHandle<()> {
        let output = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                heard(&line);
                output.push(line);
            }
        })
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut lines = self.lines();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn text(&self) -> String {
        self.lines().iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines", self.lines().len())
    }
}
