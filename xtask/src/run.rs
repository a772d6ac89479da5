//! Child processes whose exit status becomes ours, and the runtime of what is asynchronous.

use std::{
    fmt,
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::Context;

/// Runs a command to its end, with our standard streams.
///
/// # Errors
///
/// [`Failed`] when the command ran and did not succeed; another error when it could not be started.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if status.success() { Ok(()) } else { Err(Failed { command: shown(command), status }.into()) }
}

/// A runtime with a thread for each core.
///
/// # Errors
///
/// When the system gives no threads.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// A child that ran and did not succeed.
#[derive(Debug)]
pub(crate) struct Failed {
    command: String,
    status: ExitStatus,
}

impl Failed {
    /// The child's own exit code; 1 when a signal ended it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed with {}", self.command, self.status)
    }
}

impl std::error::Error for Failed {}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childs_exit_code_is_passed_on() {
        let error = run(Command::new("sh").args(["-c", "exit 7"])).expect_err("the child fails");
        let failed = error.downcast_ref::<Failed>().expect("the child ran");
        assert_eq!(failed.exit_code(), ExitCode::from(7));
        assert_eq!(error.to_string(), "`sh -c exit 7` failed with exit status: 7");
    }

    #[test]
    fn a_command_that_cannot_start_is_named() {
        let error = run(&mut Command::new("no-such-program-anywhere")).expect_err("there is none");
        assert!(error.downcast_ref::<Failed>().is_none());
        assert_eq!(error.to_string(), "cannot start `no-such-program-anywhere`");
    }
}
