//! The zones as tables: who is asked how often, how long it takes, and what comes of it. Time is simulated.

use std::{collections::BTreeMap, fmt::Write as _};

use expect_test::{Expect, expect};

use super::*;

const STATE: DataKind = DataKind::State;
const BLOCKS: DataKind = DataKind::Blocks;
const RECEIPTS: DataKind = DataKind::Transactions;
const LOGS: DataKind = DataKind::Logs;

/// One row: how often each endpoint was asked, the time, and the end.
fn row(case: &str, names: &[&str], (story, done, millis): (String, Done, u64)) -> String {
    let mut asked: BTreeMap<char, usize> = BTreeMap::new();
    story.chars().filter(|step| *step != '~').for_each(|name| *asked.entry(name).or_default() += 1);
    let mut row = format!("{case:<44}");
    for (letter, name) in ('a'..).zip(names) {
        write!(row, "{name} {:<3}", asked.get(&letter).unwrap_or(&0)).expect("a text takes more");
    }
    let end = match done {
        Done::Answered => "answer".to_owned(),
        Done::Kept => "the miss".to_owned(),
        Done::Pruned { height, oldest } => match oldest {
            Some(oldest) => format!("pruned: {height}, held from {oldest}"),
            None => format!("pruned: {height}"),
        },
        Done::NobodyLeft => "nobody answers".to_owned(),
        Done::Late => "late".to_owned(),
    };
    write!(row, "{millis:>6} ms  {end}").expect("a text takes more");
    row
}

fn check(rows: &[String], expected: &Expect) {
    expected.assert_eq(&format!("\n{}\n", rows.join("\n")));
}

#[test]
fn the_frontier() {
    let begun = Instant::now();
    let roles = [Role::Origin, Role::Read, Role::Read];
    let names = ["origin", "second", "third"];
    let mut rows = Vec::new();
    let late = |at: Duration| if at < Duration::from_secs(1) { Says::Null } else { Says::Data };
    let next = (BLOCKS, HEAD + 1);
    let mut add = |case: &str, got| rows.push(row(case, &names, got));

    let fresh = || pool(&roles, begun);
    add("there", run(&mut fresh(), next, |_, _| Says::Data, begun));
    add("the origin is late by 1 s", run(&mut fresh(), next, |_, at| late(at), begun));
    let others = |origin: Says| move |name: &str, _: Duration| if name == "a" { origin } else { Says::Data };
    add("the origin is down", run(&mut fresh(), next, others(Says::Dead), begun));
    add("the origin hangs", run(&mut fresh(), next, others(Says::Hangs), begun));
    let mut open = fresh();
    for _ in 0..5 {
        let pick = open.begin_at(EndpointId(0), begun);
        open.end(pick, "m", &Verdict::Fault(FaultKind::Refused), begun);
    }
    add("the origin's breaker is open", run(&mut open, next, others(Says::Dead), begun));
    add("the block is deep", run(&mut fresh(), (BLOCKS, 50), others(Says::Null), begun));
    add("far above the head", run(&mut fresh(), (BLOCKS, HEAD * 9), |_, _| Says::Null, begun));
    let hangs = |name: &str, _: Duration| if name == "b" { Says::Hangs } else { Says::Null };
    add("never; the second hangs on what it lacks", run(&mut fresh(), next, hangs, begun));

    let mut unknown = super::tests::headless(&roles, begun);
    add("the head is not known", run(&mut unknown, next, others(Says::Dead), begun));
    rows.push(row("one endpoint, late by 1 s", &["single"], {
        run(&mut pool(&[Role::Read], begun), next, |_, at| late(at), begun)
    }));
    rows.push(row("two without an origin, both late by 1 s", &["one", "two"], {
        run(&mut pool(&[Role::Read; 2], begun), next, |_, at| late(at), begun)
    }));
    check(
        &rows,
        &expect![[r#"

        there                                       origin 1  second 0  third 0       1 ms  answer
        the origin is late by 1 s                   origin 6  second 0  third 0    1556 ms  answer
        the origin is down                          origin 2  second 1  third 0       3 ms  answer
        the origin hangs                            origin 2  second 1  third 0    8001 ms  answer
        the origin's breaker is open                origin 0  second 1  third 0       1 ms  answer
        the block is deep                           origin 1  second 1  third 0       2 ms  answer
        far above the head                          origin 1  second 0  third 0       1 ms  answer
        never; the second hangs on what it lacks    origin 11 second 1  third 1    8002 ms  the miss
        the head is not known                       origin 1  second 1  third 0       2 ms  answer
        one endpoint, late by 1 s                   single 6    1556 ms  answer
        two without an origin, both late by 1 s     one 6  two 5    1561 ms  answer
    "#]],
    );
}

#[test]
fn the_deep() {
    let begun = Instant::now();
    let names = ["pruned", "pruned", "archive"];
    let roles = [Role::Read; 3];
    let mut rows = Vec::new();
    // The first holds 1000 blocks, the second 2000.
    let (first, second) = (HEAD - 1_000, HEAD - 2_000);
    for (kind, what) in [(STATE, "state"), (BLOCKS, "block"), (RECEIPTS, "receipts"), (LOGS, "logs")] {
        let gone = move || if kind == STATE { Says::Pruned(None) } else { Says::Null };
        let mut pool = pool(&roles, begun);
        for (height, at) in [
            (HEAD, "tip"),
            (first, "the first's lowest"),
            (first - 1, "below the first's lowest"),
            (second, "the second's lowest"),
            (second - 1, "below the second's lowest"),
            (5, "old"),
            (5, "old, again"),
        ] {
            let says = move |name: &str, _: Duration| match name {
                "a" if height < first => gone(),
                "b" if height < second => gone(),
                _ => Says::Data,
            };
            let got = run(&mut pool, (kind, height), says, begun);
            rows.push(row(&format!("{what}, {at}"), &names, got));
        }
    }
    for (case, says) in
        [("state, old, nobody has it", Says::Pruned(None)), ("block, old, nobody has it", Says::Null)]
    {
        let kind = if matches!(says, Says::Null) { BLOCKS } else { STATE };
        let mut pool = pool(&roles[..2], begun);
        run(&mut pool, (kind, first), |_, _| Says::Data, begun);
        rows.push(row(case, &names[..2], run(&mut pool, (kind, 5), |_, _| says, begun)));
    }
    check(
        &rows,
        &expect![[r#"

        state, tip                                  pruned 1  pruned 0  archive 0       1 ms  answer
        state, the first's lowest                   pruned 1  pruned 0  archive 0       1 ms  answer
        state, below the first's lowest             pruned 1  pruned 1  archive 0       2 ms  answer
        state, the second's lowest                  pruned 0  pruned 1  archive 0       1 ms  answer
        state, below the second's lowest            pruned 0  pruned 1  archive 1       2 ms  answer
        state, old                                  pruned 0  pruned 0  archive 1       1 ms  answer
        state, old, again                           pruned 0  pruned 0  archive 1       1 ms  answer
        block, tip                                  pruned 1  pruned 0  archive 0       1 ms  answer
        block, the first's lowest                   pruned 1  pruned 0  archive 0       1 ms  answer
        block, below the first's lowest             pruned 1  pruned 1  archive 0       2 ms  answer
        block, the second's lowest                  pruned 0  pruned 1  archive 0       1 ms  answer
        block, below the second's lowest            pruned 0  pruned 1  archive 1       2 ms  answer
        block, old                                  pruned 0  pruned 0  archive 1       1 ms  answer
        block, old, again                           pruned 0  pruned 0  archive 1       1 ms  answer
        receipts, tip                               pruned 1  pruned 0  archive 0       1 ms  answer
        receipts, the first's lowest                pruned 1  pruned 0  archive 0       1 ms  answer
        receipts, below the first's lowest          pruned 1  pruned 1  archive 0       2 ms  answer
        receipts, the second's lowest               pruned 0  pruned 1  archive 0       1 ms  answer
        receipts, below the second's lowest         pruned 0  pruned 1  archive 1       2 ms  answer
        receipts, old                               pruned 0  pruned 0  archive 1       1 ms  answer
        receipts, old, again                        pruned 0  pruned 0  archive 1       1 ms  answer
        logs, tip                                   pruned 1  pruned 0  archive 0       1 ms  answer
        logs, the first's lowest                    pruned 1  pruned 0  archive 0       1 ms  answer
        logs, below the first's lowest              pruned 1  pruned 1  archive 0       2 ms  answer
        logs, the second's lowest                   pruned 0  pruned 1  archive 0       1 ms  answer
        logs, below the second's lowest             pruned 0  pruned 1  archive 1       2 ms  answer
        logs, old                                   pruned 0  pruned 0  archive 1       1 ms  answer
        logs, old, again                            pruned 0  pruned 0  archive 1       1 ms  answer
        state, old, nobody has it                   pruned 1  pruned 1       2 ms  pruned: 5, held from 9000
        block, old, nobody has it                   pruned 1  pruned 1       2 ms  the miss
    "#]],
    );
}
