//! The committed contract artifacts: the ABI and the creation code of each contract, in the form that
//! alloy's `sol!` reads.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::{run::run, tools::Tools};

/// What to do with the artifacts that were built.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Replace the committed ones.
    Write,
    /// Compare them with the committed ones.
    Check,
}

/// Builds the contracts and writes or checks contracts/artifacts.
///
/// # Errors
///
/// When the contracts do not build, or the committed artifacts do not match them.
pub(crate) fn build(tools: &Tools, mode: Mode) -> anyhow::Result<()> {
    let contracts = tools.contracts();
    // All at once, without the tests and outside the tests' cache: what else is compiled in the same run
    // can change the compiler's numbering, and with it the code.
    run(Command::new(tools.forge()?)
        .args(["build", "--force", "--quiet", "--skip", "test"])
        .args(["--out", "out/artifacts", "--cache-path", "cache/artifacts"])
        .current_dir(&contracts))?;

    let built = CONTRACTS
        .iter()
        .map(|name| {
            let path = contracts.join(format!("out/artifacts/{name}.sol/{name}.json"));
            let output =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Artifact { name, text: artifact(name, &output)? })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;

    let committed = contracts.join("artifacts");
    match mode {
        Mode::Write => write(&committed, &built),
        Mode::Check => check(&committed, &built),
    }
}

/// The contracts that have an artifact, each in a file of its own name.
const CONTRACTS: [&str; 4] = ["ContextGraphs", "Multicall", "Parameters", "Token"];

struct Artifact {
    name: &'static str,
    text: String,
}

fn write(dir: &Path, built: &[Artifact]) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for Artifact { name, text } in built {
        let path = dir.join(format!("{name}.json"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote {} artifacts to contracts/artifacts", built.len());
    Ok(())
}

fn check(dir: &Path, built: &[Artifact]) -> anyhow::Result<()> {
    // One that cannot be read does not match either.
    let stale = built
        .iter()
        .filter(|built| {
            fs::read_to_string(dir.join(format!("{}.json", built.name))).ok().as_ref() != Some(&built.text)
        })
        .map(|built| format!("contracts/artifacts/{}.json", built.name))
        .collect::<Vec<_>>();
    if !stale.is_empty() {
        bail!(
            "not what the sources in contracts/src compile to: {}\n\
             run `cargo xtask artifacts` and commit the result",
            stale.join(", ")
        );
    }
    println!("contracts/artifacts matches the sources");
    Ok(())
}

/// The text of an artifact, from Forge's output for the contract.
fn artifact(name: &str, output: &str) -> anyhow::Result<String> {
    let output: Value = serde_json::from_str(output).with_context(|| format!("the output for {name}"))?;
    let code = output["bytecode"]["object"].as_str().unwrap_or_default();
    // An interface has none, and one with a library to link has placeholders in it.
    let digits = code.strip_prefix("0x").unwrap_or_default();
    ensure!(
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{name} has no creation code that could be deployed as it is"
    );
    let artifact = sorted(json!({ "contractName": name, "abi": output["abi"], "bytecode": code }));
    Ok(format!("{artifact:#}\n"))
}

/// The value with each object's keys in order. Whether serde_json keeps them in order of insertion is up to
/// the features that other crates of the build turn on.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.into_iter().map(|(key, value)| (key, sorted(value))).collect::<Vec<_>>();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{
        "metadata": {},
        "bytecode": { "object": "0x6001", "sourceMap": "" },
        "abi": [{ "type": "function", "name": "mint", "inputs": [] }]
    }"#;

    #[test]
    fn an_artifact_holds_the_abi_and_the_creation_code_alone() {
        let text = artifact("Token", OUTPUT).expect("it is complete");
        assert_eq!(
            text,
            r#"{
  "abi": [
    {
      "inputs": [],
      "name": "mint",
      "type": "function"
    }
  ],
  "bytecode": "0x6001",
  "contractName": "Token"
}
"#
        );
    }

    #[test]
    fn a_contract_without_deployable_code_is_refused() {
        for object in ["0x", "0x60__$library$__01"] {
            let output = OUTPUT.replace("0x6001", object);
            artifact("Token", &output).expect_err("it cannot be deployed");
        }
    }

    #[test]
    fn a_check_names_each_file_that_differs_or_is_missing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let built = ["Parameters", "Token"].map(|name| Artifact { name, text: format!("{name}\n") });
        write(dir.path(), &built).expect("the directory is ours");
        check(dir.path(), &built).expect("they were just written");

        fs::write(dir.path().join("Parameters.json"), "changed").expect("the directory is ours");
        fs::remove_file(dir.path().join("Token.json")).expect("it was just written");
        let message = check(dir.path(), &built).expect_err("both differ").to_string();
        assert!(message.contains("contracts/artifacts/Parameters.json, contracts/artifacts/Token.json"));
        assert!(message.contains("run `cargo xtask artifacts`"), "{message}");
    }
}
