//! What the suite is built from: only crates of the registry, each wanted for a reason and under a licence that is allowed,
//! none that is banned or there twice, and nothing of ours that runs at build time. `deny.toml` says the same to cargo-deny,
//! which needs to be installed.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use suite_tests::workspace;

fn read(name: &str) -> String {
    std::fs::read_to_string(workspace().join(name)).expect(name)
}

/// What Cargo knows of the workspace and its dependencies, those for this kind of machine. No network.
fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").expect("tests are run by Cargo, which says where it is");
    let run = |args: &[&str]| {
        let done = Command::new(&cargo).args(args).current_dir(workspace()).output();
        let done = done.expect("Cargo starts");
        let talk = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "cargo {args:?}: {talk}");
        String::from_utf8(done.stdout).expect("UTF-8")
    };
    let version = run(&["--version", "--verbose"]);
    let host = version.lines().find_map(|l| l.strip_prefix("host: "));
    let host = host.expect("Cargo names its host");
    let line = "metadata --format-version 1 --locked --offline --filter-platform";
    let mut args: Vec<&str> = line.split(' ').collect();
    args.push(host);
    serde_json::from_str(&run(&args)).expect("JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("a list")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect(key)
}

/// Members of the workspace, and all else.
fn ours(package: &Value) -> bool {
    package["source"].is_null()
}

#[test]
fn every_dependency_has_a_reason() {
    let metadata = metadata();
    let members = packages(&metadata).iter().filter(|p| ours(p));
    let dependencies = members.flat_map(|p| p["dependencies"].as_array().expect("a list"));
    let used: BTreeSet<&str> = dependencies
        .filter(|d| !d["source"].is_null())
        .map(|d| text(d, "name"))
        .collect();
    let contributing = read("CONTRIBUTING.md");
    let (_, table) = contributing
        .split_once("| crate | why |\n|---|---|\n")
        .expect("the table");
    let mut listed = BTreeSet::new();
    for row in table.lines().take_while(|l| l.starts_with('|')) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (names, why) = (cells.next().expect(row), cells.next().expect(row));
        assert!(why.len() > 5, "a reason: {row}");
        listed.extend(names.split(", "));
    }
    assert_eq!(
        used, listed,
        "dependencies, and those with a reason in CONTRIBUTING.md"
    );
}

/// The packages of a lock, each the lines of its entry.
fn locked(lock: &str) -> Vec<String> {
    let lock = read(lock);
    lock.split("[[package]]").skip(1).map(str::to_owned).collect()
}

fn value<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    let line = package
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(" = "));
    line.map(|l| l.trim_matches('"'))
}

/// Names and versions of what comes from elsewhere. Everything else must be a package of ours.
fn foreign<'a>(packages: &'a [String], ours: &[&str]) -> BTreeSet<(&'a str, &'a str)> {
    let mut names = BTreeSet::new();
    for package in packages {
        let name = value(package, "name").expect("a name");
        let Some(source) = value(package, "source") else {
            assert!(
                name.starts_with("gguf") || ours.contains(&name),
                "`{name}` has no source"
            );
            continue;
        };
        assert!(
            source.starts_with("registry+") && source.ends_with("/crates.io-index"),
            "`{name}` comes from {source}"
        );
        assert!(
            value(package, "checksum").is_some_and(|c| c.len() == 64),
            "`{name}` has no checksum"
        );
        names.insert((name, value(package, "version").expect("a version")));
    }
    names
}

#[test]
fn all_crates_come_from_the_registry() {
    let suite = locked("Cargo.lock");
    let suite = foreign(&suite, &["count-products", "suite-tests"]);
    assert!(suite.len() > 100, "{} crates", suite.len());
    // What is fuzzed is what is shipped. Whether the lock fits the manifests is asked in `.ci/run`, since Cargo wants the
    // fuzzer's own crates for that.
    let fuzzer = locked("tests/fuzz/Cargo.lock");
    let fuzzer = foreign(&fuzzer, &["suite-tests"]);
    let own: Vec<&str> = fuzzer.difference(&suite).map(|(name, _)| *name).collect();
    assert_eq!(
        own,
        ["arbitrary", "jobserver", "libfuzzer-sys"],
        "of the fuzzer alone"
    );
}

/// The quoted words of a list of `deny.toml` that follow `key = `, one a line.
fn listed(list: &str, key: &str) -> Vec<String> {
    let deny = read("deny.toml");
    let (_, rest) = deny.split_once(&format!("\n{list} = [\n")).expect("the list");
    let (rows, _) = rest.split_once("\n]").expect("its end");
    let word = |row: &str| {
        Some(
            row.split_once(&format!("{key} = \""))?
                .1
                .split('"')
                .next()?
                .to_owned(),
        )
    };
    rows.lines().map(|row| word(row).expect(row)).collect()
}

/// As `deny.toml` has it: nothing that is banned, and two versions of a crate only where it says so.
#[test]
fn no_crate_is_banned_or_there_twice() {
    /// Crates of systems that the suite is not for: the lock has those too.
    const ELSEWHERE: [&str; 2] = ["r-efi", "windows-sys"];
    let lock = locked("Cargo.lock");
    let crates = foreign(&lock, &["count-products", "suite-tests"]);
    let banned = listed("deny", "name");
    assert!(banned.len() > 3, "{banned:?}");
    let found = crates.iter().filter(|(name, _)| banned.iter().any(|b| b == name));
    assert_eq!(found.collect::<Vec<_>>(), [&("", ""); 0], "banned by deny.toml");
    let skipped = listed("skip", "crate");
    let of = |entry: &str, (name, version): &(&str, &str)| {
        let (skipped, begin) = entry.split_once('@').expect("a version");
        skipped == *name && format!("{version}.").starts_with(&format!("{begin}."))
    };
    let n_versions = |name: &str| crates.iter().filter(|(n, _)| *n == name).count();
    let stale = skipped
        .iter()
        .filter(|s| !crates.iter().any(|c| of(s, c) && n_versions(c.0) > 1));
    assert_eq!(
        stale.collect::<Vec<_>>(),
        [""; 0],
        "skipped by deny.toml, but not there twice"
    );
    let mut names = BTreeSet::new();
    for one in crates.iter().filter(|(name, _)| !ELSEWHERE.contains(name)) {
        let is_skipped = skipped.iter().any(|s| of(s, one));
        assert!(
            is_skipped || names.insert(one.0),
            "two versions of `{}`, which deny.toml does not know of",
            one.0
        );
    }
}

#[test]
fn nothing_of_ours_runs_at_build_time() {
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|p| ours(p)) {
        for target in package["targets"].as_array().expect("a list") {
            for kind in target["kind"].as_array().expect("a list") {
                assert!(
                    kind != "custom-build" && kind != "proc-macro",
                    "{}: {target}",
                    text(package, "name")
                );
            }
        }
    }
    // Those of others that compile C or look for libraries, by what they build with.
    let names: Vec<(&str, &str)> = packages(&metadata)
        .iter()
        .flat_map(|p| {
            let built_with = p["dependencies"].as_array().expect("a list").iter();
            built_with
                .filter(|d| d["kind"] == "build" && d["optional"] == false && !ours(p))
                .map(|d| (text(p, "name"), text(d, "name")))
        })
        .filter(|(_, with)| ["cc", "cmake", "bindgen", "pkg-config", "vcpkg"].contains(with))
        .collect();
    assert_eq!(
        names,
        [("alloca", "cc"), ("ring", "cc")],
        "CONTRIBUTING.md names them"
    );
}

/// The list `allow` of `deny.toml`.
fn allowed() -> Vec<String> {
    let deny = read("deny.toml");
    let (_, list) = deny.split_once("\nallow = [").expect("the list");
    let (list, _) = list.split_once(']').expect("its end");
    let names = list.split(',').map(|n| n.trim().trim_matches('"').to_owned());
    names.filter(|n| !n.is_empty()).collect()
}

/// Whether an SPDX expression can be met with the licences of `allowed`. `/` is an old spelling of `OR`.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any_of(&words, allowed);
    assert!(rest.is_empty(), "{expression}: {rest:?} is left");
    met
}

fn any_of<'a, 'b>(words: &'b [&'a str], allowed: &[String]) -> (bool, &'b [&'a str]) {
    let (mut met, mut rest) = all_of(words, allowed);
    while let ["OR", tail @ ..] = rest {
        let (next, left) = all_of(tail, allowed);
        (met, rest) = (met | next, left);
    }
    (met, rest)
}

fn all_of<'a, 'b>(words: &'b [&'a str], allowed: &[String]) -> (bool, &'b [&'a str]) {
    let (mut met, mut rest) = one(words, allowed);
    while let ["AND", tail @ ..] = rest {
        let (next, left) = one(tail, allowed);
        (met, rest) = (met & next, left);
    }
    (met, rest)
}

fn one<'a, 'b>(words: &'b [&'a str], allowed: &[String]) -> (bool, &'b [&'a str]) {
    match words {
        ["(", tail @ ..] => {
            let (met, rest) = any_of(tail, allowed);
            assert_eq!(rest.first(), Some(&")"), "an open parenthesis");
            (met, &rest[1..])
        }
        // An exception is a licence of its own here.
        [name, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (allowed.iter().any(|a| a == name), rest),
        [] => panic!("an expression that ends early"),
    }
}

#[test]
fn every_licence_is_allowed() {
    let allowed = allowed();
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("MIT AND (GPL-3.0-only OR LGPL-3.0-only)", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
    let metadata = metadata();
    let mut used = BTreeSet::new();
    for package in packages(&metadata) {
        let (name, expression) = (text(package, "name"), text(package, "license"));
        assert!(
            is_met(expression, &allowed),
            "`{name}`: licence {expression} is not in deny.toml"
        );
        used.extend(allowed.iter().filter(|a| expression.contains(a.as_str())));
    }
    assert_eq!(
        used.len(),
        allowed.len(),
        "licences of deny.toml that nothing has"
    );
}
