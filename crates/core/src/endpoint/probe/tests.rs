use super::*;

const NODE: EndpointId = EndpointId(0);
const OTHER: EndpointId = EndpointId(1);
const HEAD: u64 = 200_000;
const SENDER: Address = Address::repeat_byte(0x5e);
const NONCE: u64 = 7;

/// A node: what it holds from where on, and how it answers for state below.
#[derive(Clone, Copy)]
struct Node {
    from: u64,
    below: Said,
}

const ARCHIVE: Node = Node { from: 0, below: Said::Nothing };

/// The chain has a transaction in block 1, and the first logs in block `HEAD / 64`.
fn answer(node: Node, question: Question) -> Said {
    if question.height() < node.from {
        return node.below;
    }
    match question {
        Question::Block { height, detail } => {
            let transaction = (detail == Detail::Transactions && height == 1).then_some(Landmark {
                hash: B256::repeat_byte(1),
                sender: SENDER,
                nonce: NONCE,
            });
            let logs = if height == HEAD / 64 { Logs::Some } else { Logs::Unknown };
            Said::Block(Seen { transaction, logs })
        }
        Question::Count { height: 0, .. } => Said::Count(NONCE),
        Question::Count { .. } => Said::Count(NONCE + 1),
        Question::Receipt { .. } | Question::Logs { .. } => Said::There,
    }
}

fn run(
    probes: &mut Probes,
    nodes: &[(EndpointId, Node)],
) -> (Vec<Finding>, BTreeMap<EndpointId, Vec<Question>>) {
    run_with(probes, nodes, answer)
}

fn run_with(
    probes: &mut Probes,
    nodes: &[(EndpointId, Node)],
    answer: impl Fn(Node, Question) -> Said,
) -> (Vec<Finding>, BTreeMap<EndpointId, Vec<Question>>) {
    let (mut findings, mut asked) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let among: Vec<_> = nodes.iter().map(|(id, _)| (*id, HEAD)).collect();
    let mut put = |probes: &mut Probes, id: EndpointId, question: Question| {
        asked.entry(id).or_default().push(question);
        let (_, node) = nodes.iter().find(|(other, _)| *other == id).expect("it was offered");
        findings.extend(probes.told(id, question, answer(*node, question)));
    };
    while let Some((id, question)) = probes.search(&among) {
        put(probes, id, question);
    }
    for (id, _) in nodes {
        while let Some(question) = probes.next(*id, HEAD) {
            put(probes, *id, question);
        }
        probes.ended(*id);
    }
    (findings, asked)
}

fn of(findings: &[Finding], id: EndpointId, kind: DataKind) -> Vec<(u64, Found)> {
    let own = findings.iter().filter(|finding| (finding.id, finding.kind) == (id, kind));
    own.map(|finding| (finding.height, finding.found)).collect()
}

const MISSING: Found = Found::Missing { oldest: None };

#[test]
fn an_archive_shows_every_kind_in_few_questions() {
    let (findings, asked) = run(&mut Probes::default(), &[(NODE, ARCHIVE)]);
    assert_eq!(of(&findings, NODE, DataKind::State), [(0, Found::Held)]);
    assert_eq!(of(&findings, NODE, DataKind::Blocks), [(1, Found::Held), (HEAD / 64, Found::Held)]);
    assert_eq!(of(&findings, NODE, DataKind::Transactions), [(1, Found::Held)]);
    assert_eq!(of(&findings, NODE, DataKind::Logs), [(HEAD / 64, Found::Held)]);
    assert_eq!(asked[&NODE].len(), 6);
    let details = asked[&NODE].iter().filter_map(|question| match question {
        Question::Block { detail, .. } => Some(*detail),
        Question::Count { .. } | Question::Receipt { .. } | Question::Logs { .. } => None,
    });
    // The logs need no transactions.
    assert_eq!(details.collect::<Vec<_>>(), [Detail::Transactions, Detail::Header]);
}

#[test]
fn what_one_endpoint_shows_is_asked_of_the_others() {
    let mut probes = Probes::default();
    let (findings, asked) = run(&mut probes, &[(NODE, ARCHIVE), (OTHER, ARCHIVE)]);
    assert_eq!(asked[&OTHER].len(), 5);
    assert_eq!(of(&findings, OTHER, DataKind::State), [(0, Found::Held)]);
    assert_eq!(of(&findings, OTHER, DataKind::Logs), [(HEAD / 64, Found::Held)]);
    let later = EndpointId(2);
    let (findings, asked) = run(&mut probes, &[(later, ARCHIVE)]);
    assert_eq!(asked[&later].len(), 5);
    assert_eq!(of(&findings, later, DataKind::Transactions), [(1, Found::Held)]);
}

#[test]
fn a_pruned_node_is_asked_nearer_to_its_head_until_it_answers() {
    let refused = Said::Refused { oldest: None };
    let cases: [(u64, &[(u64, Found)]); 4] = [
        (50, &[(1, MISSING), (10_000, MISSING), (256, MISSING), (96, MISSING)]),
        (128, &[(1, MISSING), (10_000, MISSING), (256, MISSING), (96, Found::Held)]),
        (1_000, &[(1, MISSING), (10_000, MISSING), (256, Found::Held)]),
        (20_000, &[(1, MISSING), (10_000, Found::Held), (90_000, MISSING)]),
    ];
    for (kept, expected) in cases {
        let state = |node: Node, question: Question| match question.kind() {
            DataKind::State => answer(node, question),
            DataKind::Blocks | DataKind::Logs | DataKind::Transactions => answer(ARCHIVE, question),
        };
        let node = Node { from: HEAD - kept, below: refused };
        let (findings, asked) = run_with(&mut Probes::default(), &[(NODE, node)], state);
        let mut expected = expected.to_vec();
        for (at, _) in &mut expected[1..] {
            *at = HEAD - *at;
        }
        assert_eq!(of(&findings, NODE, DataKind::State), expected, "{kept}");
        assert!(asked[&NODE].len() <= MOST_QUESTIONS);
    }
}

#[test]
fn blocks_that_are_not_there_are_missing_whoever_else_has_them() {
    let node = Node { from: HEAD - 128, below: Said::Nothing };
    let (findings, asked) = run(&mut Probes::default(), &[(NODE, node)]);
    let heights = [1, HEAD / 64, HEAD / 8, HEAD / 2].map(|at| (at, MISSING));
    assert_eq!(of(&findings, NODE, DataKind::Blocks), heights);
    assert_eq!(asked[&NODE].len(), 4);

    let (findings, asked) = run(&mut Probes::default(), &[(NODE, node), (OTHER, ARCHIVE)]);
    let blocks = of(&findings, NODE, DataKind::Blocks);
    // The oldest block is looked for at the next endpoint before a higher one is asked for.
    assert_eq!(blocks[0], (1, MISSING));
    assert!(blocks.contains(&(HEAD - 96, Found::Held)), "{blocks:?}");
    assert_eq!(asked[&NODE].len(), 11);
    assert_eq!(asked[&OTHER].len(), 6);
}

#[test]
fn a_wrong_answer_counts_once_another_endpoint_has_given_the_right_one() {
    let zero = |node: Node, question: Question| match question {
        Question::Count { height, .. } if height < node.from => Said::Count(0),
        Question::Receipt { .. } | Question::Logs { .. } if node.from > 0 => Said::Nothing,
        question => answer(ARCHIVE, question),
    };
    let pruned = Node { from: HEAD - 128, below: Said::Nothing };
    let mut probes = Probes::default();
    let (findings, _) = run_with(&mut probes, &[(NODE, pruned)], zero);
    assert_eq!(of(&findings, NODE, DataKind::State), [(HEAD - 96, Found::Held)]);
    assert_eq!(of(&findings, NODE, DataKind::Logs), []);
    assert_eq!(probes.suspects(), [DataKind::State, DataKind::Logs, DataKind::Transactions]);
    assert_eq!(probes.suspects(), []);

    let (findings, _) = run_with(&mut probes, &[(OTHER, ARCHIVE)], zero);
    let expected = [1, HEAD - 10_000, HEAD - 256].map(|at| (at, MISSING));
    assert_eq!(of(&findings, NODE, DataKind::State), expected);
    assert_eq!(of(&findings, NODE, DataKind::Transactions), [(1, MISSING)]);
    assert_eq!(of(&findings, NODE, DataKind::Logs), [(HEAD / 64, MISSING)]);

    let third = EndpointId(2);
    let (findings, _) = run_with(&mut probes, &[(third, pruned)], zero);
    assert_eq!(of(&findings, third, DataKind::State)[0], (1, MISSING));
    assert_eq!(probes.suspects(), []);
}

#[test]
fn a_right_answer_higher_up_confirms_nothing_below_it() {
    let mut probes = Probes::default();
    probes.seen.insert(
        5,
        Seen {
            transaction: Some(Landmark { hash: B256::ZERO, sender: SENDER, nonce: NONCE }),
            logs: Logs::Unknown,
        },
    );
    let count = |height| Question::Count { sender: SENDER, height };
    assert_eq!(probes.told(NODE, count(5), Said::Count(NONCE)), []);
    assert_eq!(of(&probes.told(OTHER, count(6), Said::Count(NONCE + 1)), NODE, DataKind::State), []);
    assert_eq!(probes.told(OTHER, count(5), Said::Count(NONCE)), []);
    let findings = probes.told(EndpointId(2), count(4), Said::Count(NONCE));
    assert_eq!(of(&findings, NODE, DataKind::State), [(5, MISSING)]);
    assert_eq!(of(&findings, OTHER, DataKind::State), [(5, MISSING)]);
    // What is missing from above is told at once from here on.
    assert_eq!(
        of(&probes.told(NODE, count(4), Said::Count(NONCE + 1)), NODE, DataKind::State),
        [(4, MISSING)]
    );
}

#[test]
fn an_endpoint_that_tells_the_latest_count_at_any_height_is_no_archive() {
    let latest = |node: Node, question: Question| match question {
        Question::Count { .. } if node.from > 0 => Said::Count(NONCE + 100),
        question => answer(ARCHIVE, question),
    };
    let liar = Node { from: 1, below: Said::Nothing };
    let mut probes = Probes::default();
    let (findings, _) = run_with(&mut probes, &[(NODE, liar)], latest);
    assert_eq!(of(&findings, NODE, DataKind::State), []);
    assert_eq!(probes.suspects(), [DataKind::State]);
    let (findings, _) = run_with(&mut probes, &[(OTHER, ARCHIVE)], latest);
    assert_eq!(of(&findings, OTHER, DataKind::State), [(0, Found::Held)]);
    assert_eq!(of(&findings, NODE, DataKind::State), [(0, MISSING)]);
}

#[test]
fn without_anything_known_nothing_is_said_but_of_blocks() {
    let empty = |_: Node, question: Question| match question {
        Question::Block { .. } => Said::Block(Seen { transaction: None, logs: Logs::Unknown }),
        other => panic!("{other:?} is about nothing known"),
    };
    let (findings, asked) = run_with(&mut Probes::default(), &[(NODE, ARCHIVE), (OTHER, ARCHIVE)], empty);
    assert_eq!((asked[&NODE].len(), asked[&OTHER].len()), (4, 1));
    assert_eq!(findings.len(), 5);
    assert!(findings.iter().all(|finding| finding.found == Found::Held));
}

#[test]
fn an_answer_that_says_nothing_ends_the_search_there() {
    let (findings, asked) =
        run_with(&mut Probes::default(), &[(NODE, ARCHIVE), (OTHER, ARCHIVE)], |_, _| Said::Unclear);
    assert_eq!(findings, []);
    assert_eq!((asked[&NODE].len(), asked[&OTHER].len()), (1, 1));
    let mut probes = Probes::default();
    let unfit = [Said::Count(1), Said::There];
    for said in unfit {
        assert_eq!(probes.told(NODE, Question::Block { height: 1, detail: Detail::Header }, said), []);
    }
    assert_eq!(probes.told(NODE, Question::Count { sender: SENDER, height: 1 }, Said::Count(8)), []);
}

#[test]
fn nothing_is_asked_above_an_endpoints_own_head() {
    let mut probes = Probes::default();
    assert_eq!(probes.search(&[]), None);
    assert_eq!(probes.search(&[(NODE, 0)]), None);
    let at = |height| Question::Block { height, detail: Detail::Transactions };
    assert_eq!(probes.search(&[(NODE, 1), (OTHER, 64)]), Some((NODE, at(1))));
    probes.told(NODE, at(1), Said::Nothing);
    assert_eq!(probes.search(&[(NODE, 1), (OTHER, 64)]), Some((OTHER, at(1))));
    probes.told(OTHER, at(1), Said::Nothing);
    assert_eq!(probes.search(&[(NODE, 1), (OTHER, 64)]), Some((OTHER, at(8))));
    let logs = Said::Block(Seen { transaction: None, logs: Logs::Some });
    probes.told(OTHER, at(8), logs);
    assert_eq!(probes.next(NODE, 7), None);
    assert_eq!(probes.next(NODE, 8), Some(Question::Block { height: 8, detail: Detail::Header }));
}

#[test]
fn an_endpoint_is_due_once_and_again_where_it_did_not_come_to_an_end() {
    let mut probes = Probes::default();
    probes.identified(NODE);
    probes.identified(OTHER);
    assert_eq!(probes.take_due(|id| id == NODE), [NODE]);
    assert_eq!(probes.take_due(|_| true), [OTHER]);
    assert_eq!(probes.take_due(|_| true), []);
    probes.ended(NODE);
    probes.identified(NODE);
    probes.identified(OTHER);
    assert_eq!(probes.take_due(|_| true), [OTHER]);
}

#[test]
fn there_is_a_bound_to_what_one_endpoint_is_asked() {
    let mut probes = Probes::default();
    let question = |height| Question::Logs { height };
    for height in 0..MOST_QUESTIONS as u64 - 1 {
        probes.told(NODE, question(height), Said::There);
    }
    let block = Question::Block { height: 1, detail: Detail::Transactions };
    probes.search(&[(OTHER, HEAD)]);
    probes.told(OTHER, block, answer(ARCHIVE, block));
    assert!(probes.next(NODE, HEAD).is_some());
    probes.told(NODE, question(HEAD), Said::There);
    assert_eq!(probes.next(NODE, HEAD), None);
}

#[test]
fn what_was_answered_is_not_asked_again() {
    let mut probes = Probes::default();
    let (id, first) = probes.search(&[(NODE, HEAD)]).expect("nothing is known");
    probes.told(id, first, answer(ARCHIVE, first));
    let (_, second) = probes.search(&[(NODE, HEAD)]).expect("no logs are known");
    assert_ne!(first.height(), second.height());
}
