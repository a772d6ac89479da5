//! Which files are mutated, and which mutants no test can notice.

use std::{fs, path::Path};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::{Fate, Mutant};

/// The files to mutate, and the mutants that are excused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Paths of files and folders, from the root of the workspace.
    files: Vec<String>,
    /// Parts of the names of tests that are not run, because they are of other code.
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default)]
    excused: Vec<Excuse>,
}

/// A mutant that does the same as the code that it is made of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Excuse {
    /// The path of the file from the root of the workspace.
    file: String,
    /// What is changed, as cargo-mutants names it, without the place.
    change: String,
    /// The line that is changed, without the space around it.
    code: String,
    /// Why nobody could tell the difference.
    why: String,
}

impl Excuse {
    fn is_for(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file && self.change == mutant.change && self.code == mutant.code
    }
}

impl Plan {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let read = || {
            let plan: Self = toml::from_str(&fs::read_to_string(path)?)?;
            ensure!(!plan.files.is_empty(), "`files` is empty; nothing would be mutated");
            if let Some(excuse) = plan.excused.iter().find(|excuse| excuse.why.trim().is_empty()) {
                bail!("`{}` is excused without a reason; say `why`", excuse.change);
            }
            Ok(plan)
        };
        read().with_context(|| format!("{} cannot be used", path.display()))
    }

    /// Parts of the names of tests that are not run.
    pub(super) fn skip(&self) -> &[String] {
        &self.skip
    }

    /// The files to mutate below `root`: all, or those with one of these texts in their path.
    pub(super) fn files(&self, root: &Path, chosen: &[String]) -> anyhow::Result<Vec<String>> {
        let mut files = Vec::new();
        for path in &self.files {
            gather(root, path.clone(), &mut files).with_context(|| format!("`files` names {path}"))?;
        }
        if let Some(part) = chosen.iter().find(|part| !files.iter().any(|file| file.contains(*part))) {
            bail!("none of the files to mutate has `{part}` in its path");
        }
        files.retain(|file| chosen.is_empty() || chosen.iter().any(|part| file.contains(part)));
        Ok(files)
    }

    /// What is wrong: each missed mutant without an excuse, and each excuse that is none, for the files that
    /// were mutated.
    pub(super) fn judge(&self, mutants: &[Mutant]) -> Vec<String> {
        let missed = mutants.iter().filter(|mutant| mutant.fate == Fate::Missed);
        let unexcused = missed.filter(|mutant| !self.excused.iter().any(|excuse| excuse.is_for(mutant)));
        let mut complaints: Vec<String> = unexcused
            .map(|Mutant { file, line, code, change, .. }| {
                format!("missed: {file}:{line}: {change}\n    {code}")
            })
            .collect();
        for excuse in &self.excused {
            if !mutants.iter().any(|mutant| mutant.file == excuse.file) {
                continue;
            }
            let mut its = mutants.iter().filter(|mutant| excuse.is_for(mutant)).peekable();
            let Excuse { file, change, code, .. } = excuse;
            if its.peek().is_none() {
                complaints.push(format!("excused, and no such mutant: {file}: {change}\n    {code}"));
            } else if its.all(|mutant| mutant.fate != Fate::Missed) {
                complaints.push(format!("excused, and a test notices it: {file}: {change}\n    {code}"));
            }
        }
        complaints
    }
}

/// The Rust files at a path.
fn gather(root: &Path, path: String, files: &mut Vec<String>) -> anyhow::Result<()> {
    if !root.join(&path).is_dir() {
        ensure!(root.join(&path).is_file(), "there is no {path}");
        files.push(path);
        return Ok(());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(&path))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() || name.ends_with(".rs") {
            names.push(name);
        }
    }
    names.sort();
    names.into_iter().try_for_each(|name| gather(root, format!("{path}/{name}"), files))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/core/src/endpoint/breaker.rs";

    fn plan(excused: &[(&str, &str)]) -> Plan {
        let excuse = |(change, code): &(&str, &str)| Excuse {
            file: FILE.into(),
            change: (*change).into(),
            code: (*code).into(),
            why: "it is the same".into(),
        };
        Plan { files: vec![FILE.into()], skip: Vec::new(), excused: excused.iter().map(excuse).collect() }
    }

    fn mutant(change: &str, code: &str, fate: Fate) -> Mutant {
        Mutant { file: FILE.into(), line: 7, code: code.into(), change: change.into(), fate }
    }

    #[test]
    fn a_missed_mutant_needs_an_excuse_for_its_own_line() {
        let mutants = [
            mutant("replace > with >= in f", "a > b", Fate::Missed),
            mutant("replace > with >= in f", "c > d", Fate::Missed),
            mutant("replace + with - in f", "a + b", Fate::Caught),
            mutant("replace g with ()", "fn g() {", Fate::TimedOut),
            mutant("replace h -> T with Default::default()", "fn h() -> T {", Fate::Unviable),
        ];
        assert_eq!(
            plan(&[("replace > with >= in f", "a > b")]).judge(&mutants),
            ["missed: crates/core/src/endpoint/breaker.rs:7: replace > with >= in f\n    c > d"]
        );
    }

    #[test]
    fn an_excuse_for_nothing_is_a_complaint() {
        let mutants = [mutant("replace + with - in f", "a + b", Fate::Caught)];
        let judged =
            plan(&[("replace + with - in f", "a + b"), ("replace + with - in f", "a + c")]).judge(&mutants);
        let [noticed, none] = &judged[..] else { panic!("{judged:?}") };
        assert!(noticed.starts_with("excused, and a test notices it: "), "{noticed}");
        assert!(none.starts_with("excused, and no such mutant: "), "{none}");
    }

    #[test]
    fn excuses_in_files_that_were_not_mutated_are_not_judged() {
        let elsewhere = Mutant { file: "crates/core/src/lib.rs".into(), ..mutant("c", "d", Fate::Caught) };
        assert_eq!(plan(&[("a", "b")]).judge(&[elsewhere]), [""; 0]);
    }

    #[test]
    fn the_plan_of_this_workspace_can_be_read_and_names_files_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let plan = Plan::read(&root.join("xtask/mutants.toml")).expect("it can be read");
        let all = plan.files(root, &[]).expect("they exist");
        let some = plan.files(root, &["breaker".into()]).expect("there is one");
        assert_eq!(some, [FILE]);
        assert!(all.contains(&FILE.to_owned()) && all.len() > 1, "{all:?}");
        plan.files(root, &["no such file".into()]).expect_err("there is none");
        for excuse in &plan.excused {
            let lines = fs::read_to_string(root.join(&excuse.file)).expect("the file exists");
            assert!(lines.lines().any(|line| line.trim() == excuse.code), "{excuse:?} is for no line");
        }
    }
}
