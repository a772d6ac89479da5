//! The invariants of ARCHITECTURE.md that can be read off the workspace itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Package to what it may depend on, of this workspace; dev-dependencies aside.
const ARROWS: [(&str, &[&str]); 12] = [
    ("backstay-core", &[]),
    ("backstay-provider", &["backstay-core"]),
    ("backstay-journal", &["backstay-core"]),
    ("backstay-tx", &["backstay-core", "backstay-provider", "backstay-journal"]),
    ("backstay-recovery", &["backstay-core", "backstay-provider", "backstay-tx"]),
    (
        "backstay-intents",
        &["backstay-core", "backstay-provider", "backstay-journal", "backstay-tx", "backstay-recovery"],
    ),
    (
        "backstay",
        &[
            "backstay-core",
            "backstay-provider",
            "backstay-journal",
            "backstay-tx",
            "backstay-recovery",
            "backstay-intents",
        ],
    ),
    ("backstay-cli", &["backstay"]),
    ("backstay-testkit", &["backstay"]),
    ("e2e", &["backstay", "backstay-provider", "backstay-testkit"]),
    ("examples", &["backstay", "backstay-testkit"]),
    ("xtask", &["backstay-testkit", "e2e"]),
];

/// All that `core` may be built from.
const CORE: [&str; 7] =
    ["alloy-primitives", "alloy-sol-types", "backon", "humantime-serde", "serde", "serde_json", "thiserror"];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo describes its own workspace")
}

fn normal_dependencies(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let package = |package: &cargo_metadata::Package| {
        let normal =
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        (package.name.to_string(), normal.map(|dependency| dependency.name.clone()).collect())
    };
    metadata.packages.iter().map(package).collect()
}

#[test]
fn crates_depend_on_each_other_only_along_the_arrows() {
    let dependencies = normal_dependencies(&metadata());
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate came or went: draw its arrows here and in ARCHITECTURE.md");
    for (name, allowed) in ARROWS {
        let ours = dependencies[name].iter().map(String::as_str).filter(|other| known.contains(other));
        let beyond: Vec<&str> = ours.filter(|other| !allowed.contains(other)).collect();
        assert!(beyond.is_empty(), "{name} depends on {beyond:?}");
    }
}

#[test]
fn core_is_pure() {
    let metadata = metadata();
    let beyond: Vec<String> = normal_dependencies(&metadata)["backstay-core"]
        .iter()
        .filter(|dependency| !CORE.contains(&dependency.as_str()))
        .cloned()
        .collect();
    assert!(beyond.is_empty(), "core depends on {beyond:?}");

    const IMPURE: [&str; 12] = [
        "Instant::now",
        "SystemTime::now",
        "Mutex",
        "RwLock",
        "std::fs",
        "std::net",
        "std::thread",
        "std::env",
        "async fn",
        ".await",
        "rand::",
        "RandomState",
    ];
    let sources = metadata.workspace_root.as_std_path().join("crates/core/src");
    for file in rust_files(&sources) {
        let text = fs::read_to_string(&file).expect("a source file is text");
        // Tests may look at the clock.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let used: Vec<&str> = IMPURE.into_iter().filter(|word| code.contains(word)).collect();
        assert!(used.is_empty() || is_test(&file), "{} uses {used:?}", file.display());
    }
}

#[test]
fn only_the_classifier_looks_inside_error_messages() {
    const LOOKS: [&str; 4] =
        [".message.contains(", ".message.starts_with(", "to_string().contains(", ".message.to_lowercase("];
    let root = metadata().workspace_root.into_std_path_buf();
    for name in ["core", "provider", "tx", "recovery", "journal", "intents", "sdk", "cli"] {
        for file in rust_files(&root.join("crates").join(name).join("src")) {
            if file.components().any(|part| part.as_os_str() == "failure") || is_test(&file) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a source file is text");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let looks: Vec<&str> = LOOKS.into_iter().filter(|word| code.contains(word)).collect();
            assert!(looks.is_empty(), "{} has {looks:?}", file.display());
        }
    }
}

fn is_test(file: &Path) -> bool {
    file.file_stem().is_some_and(|stem| stem == "tests" || stem == "properties")
        || file.components().any(|part| part.as_os_str() == "tests")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder can be listed") {
            let path = entry.expect("an entry of a source folder can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}
