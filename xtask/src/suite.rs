//! Every test there is.

use std::{env, ffi::OsString, path::Path, process::Command};

use crate::{
    artifacts::{self, Mode},
    crash,
    run::run,
    tools::Tools,
};

/// Runs the Solidity tests, checks the artifacts, and runs the crash matrix, then `cargo test` on the whole
/// workspace; or `cargo test` on what `args` say, without the matrix.
///
/// # Errors
///
/// At the first of these that fails, with its exit status.
pub(crate) fn run_all(tools: &Tools, args: &CargoArgs) -> anyhow::Result<()> {
    run(Command::new(tools.forge()?).arg("test").current_dir(tools.contracts()))?;
    artifacts::build(tools, Mode::Check)?;
    if args.cargo.is_empty() {
        // Not last, so that the output ends with the summary of the tests.
        crash::run(tools, &crash::Args::default_selection())?;
    }

    for selection in selections(&args.cargo) {
        run(tools.command(cargo())?.arg("test").args(selection).arg("--").args(&args.binaries))?;
    }
    Ok(())
}

/// Runs the benchmarks, in a release build.
///
/// # Errors
///
/// When they cannot be built or run.
pub(crate) fn bench(tools: &Tools, json: Option<&Path>) -> anyhow::Result<()> {
    let mut command = tools.command(cargo())?;
    command.args(["run", "--release", "--quiet", "-p", "e2e", "--bin", "bench", "--"]);
    if let Some(path) = json {
        let path = env::current_dir()?.join(path);
        command.arg("--json").arg(path);
    }
    run(&mut command)
}

/// Cargo sets the variable: the same toolchain goes on.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Arguments for `cargo test`.
pub(crate) struct CargoArgs {
    /// Those for cargo itself.
    pub(crate) cargo: Vec<String>,
    /// Those for the binaries that hold the tests.
    pub(crate) binaries: Vec<String>,
}

impl CargoArgs {
    /// Takes what follows the first `--` in `args`, then `binaries`, for the test binaries.
    pub(crate) fn new(args: &[String], binaries: &[String]) -> Self {
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let after = args.get(end + 1..).unwrap_or_default();
        Self { cargo: args[..end].to_vec(), binaries: [after, binaries].concat() }
    }
}

/// The arguments that select what is tested, for each run of `cargo test`.
fn selections(args: &[String]) -> Vec<Vec<String>> {
    if args.is_empty() {
        // Cargo runs doc tests last, one package after the other, and prints no total. Taken first, they
        // leave the summary of real tests at the end.
        let whole =
            |kinds: &[&str]| [&["--workspace"], kinds].concat().into_iter().map(String::from).collect();
        return vec![whole(&["--doc"]), whole(&["--lib", "--bins", "--tests", "--examples"])];
    }
    let mut run = args.to_vec();
    if !names_a_package(args) {
        run.insert(0, "--workspace".into());
    }
    vec![run]
}

/// Whether cargo is told of packages, which it would ignore next to `--workspace`.
fn names_a_package(args: &[String]) -> bool {
    args.iter().any(|arg| arg.starts_with("-p") || arg == "--package" || arg.starts_with("--package="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &str, expected: &[&str]) {
        let args = args.split_whitespace().map(String::from).collect::<Vec<_>>();
        let runs = selections(&args).into_iter().map(|run| run.join(" ")).collect::<Vec<_>>();
        assert_eq!(runs, expected);
    }

    #[test]
    fn the_doc_tests_are_not_last() {
        check("", &["--workspace --doc", "--workspace --lib --bins --tests --examples"]);
    }

    #[test]
    fn arguments_go_to_one_run_of_the_workspace() {
        check("reorg", &["--workspace reorg"]);
        check("--doc", &["--workspace --doc"]);
    }

    #[test]
    fn a_package_takes_the_place_of_the_workspace() {
        check("-p e2e reorg", &["-p e2e reorg"]);
        check("--package=e2e", &["--package=e2e"]);
    }
}
