//! The runs of cargo-mutants: several at once, each with its share of the mutants and a target directory of its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};

/// The least time that the tests of a mutant get: where they loop for ever, that is noticed as well.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// What each of the runs is told.
pub(super) struct Orders<'a> {
    /// cargo-mutants.
    pub(super) program: &'a Path,
    /// The root of the workspace.
    pub(super) root: &'a Path,
    /// The files to mutate.
    pub(super) files: &'a [String],
    /// Parts of the names of tests that are not run.
    pub(super) skip: &'a [String],
    /// How many runs share the mutants.
    pub(super) jobs: usize,
}

/// Runs cargo-mutants on all shares at once, below `folder`. Returns the reports of those that had any mutant.
///
/// The target directories stay: the next run finds the dependencies built.
pub(super) fn run(folder: &Path, orders: &Orders<'_>) -> anyhow::Result<Vec<PathBuf>> {
    let mut shares = Vec::new();
    for number in 0..orders.jobs {
        let share = folder.join(number.to_string());
        // The report of an earlier run would pass for that of a share without mutants.
        let _ = fs::remove_dir_all(share.join("mutants.out"));
        fs::create_dir_all(&share)?;
        let child = orders.command(number, &share).stdout(Stdio::piped()).spawn();
        shares.push((share, child.context("cannot start cargo-mutants")?));
    }
    let ended: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = shares.iter_mut().map(|(_, child)| scope.spawn(|| attend(child))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let mut reports = Vec::new();
    for ((share, _), ended) in shares.iter().zip(ended) {
        let status = ended?;
        // 2 and 3 say that mutants were missed or that their tests ran out of time: that is judged from the reports.
        ensure!(
            matches!(status.code(), Some(0 | 2 | 3)),
            "cargo-mutants did not get to the end ({status}); its logs are in {}",
            share.join("mutants.out").display()
        );
        reports.push(share.join("mutants.out/outcomes.json"));
    }
    // A share of few mutants can be empty.
    reports.retain(|report| report.is_file());
    Ok(reports)
}

/// Passes on what a run says, line by line: several cannot draw on one terminal.
fn attend(child: &mut Child) -> anyhow::Result<std::process::ExitStatus> {
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            println!("{}", line?);
        }
    }
    Ok(child.wait()?)
}

impl Orders<'_> {
    fn command(&self, number: usize, share: &Path) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(["mutants", "--package", "backstay-core", "--no-times", "--colors", "never"])
            .args(["--gitignore", "true", "--jobs", "1", "--sharding", "round-robin"])
            .arg(format!("--shard={number}/{}", self.jobs))
            .args(["--minimum-test-timeout", &TEST_TIMEOUT.as_secs().to_string()])
            .arg("--output")
            .arg(share)
            .args(self.files.iter().flat_map(|file| ["--file", file]))
            // For the build too, which makes the library a second time otherwise, for its examples.
            .arg("--cargo-arg=--lib")
            .args(["--", "--"])
            .args(self.skip.iter().flat_map(|part| ["--skip", part]))
            .current_dir(self.root)
            .env("CARGO_TARGET_DIR", share.join("target"))
            .env("CARGO_INCREMENTAL", "1")
            // Nobody reads what a failed test prints.
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .env("RUST_BACKTRACE", "0")
            // The same cases for each mutant and in each run, and the first that fails is enough.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command
    }
}
