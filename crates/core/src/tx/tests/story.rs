//! What happens to an intent, and what may happen while nobody works on it.

use std::{cell::RefCell, rc::Rc};

use super::{
    judge::Kind,
    life::{Asked, End, Life, Sea, Why},
    world::{NEED, Quirks, Reply, World, grant, register, touch},
};
use crate::failure::RefusalKind;

/// One story.
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) world: fn() -> World,
    /// Whether the call is one that needs an allowance.
    call: Wants,
    /// The cap of the grant that each process is given; the last one goes on.
    caps: &'static [u64],
    /// How it ends: undisturbed, and how else it may when a process is killed.
    pub(super) ends: &'static [Kind],
}

#[derive(Clone, Copy)]
enum Wants {
    Register,
    Touch,
}

const FINAL: RefusalKind = RefusalKind::Policy;
const PASSING: RefusalKind = RefusalKind::PoolFull;

pub(super) const STORIES: &[Story] = &[
    Story {
        name: "a plain call",
        world: || World::new(0),
        call: Wants::Touch,
        caps: &[0],
        ends: &[Kind::Included],
    },
    Story {
        name: "a call that is allowed already",
        world: || World::new(NEED),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "approve, then register",
        world: || World::new(0),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the replies to both sends are lost, and the bytes arrive",
        world: || replies(World::new(0), &[Reply::LostKept, Reply::LostKept]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the replies to both sends are lost, and the bytes too",
        world: || replies(World::new(0), &[Reply::Lost, Reply::Taken, Reply::Lost]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "a pool takes it and loses it",
        world: || replies(World::new(0), &[Reply::TakenAndLost, Reply::Taken, Reply::TakenAndLost]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "no endpoint can be reached at first, and pools are full",
        world: || {
            let full = Reply::Refused(PASSING);
            replies(World::new(0), &[Reply::NotSent, full, full, Reply::Taken, full, Reply::NotSent])
        },
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "all endpoints refuse the call, once",
        world: || replies(World::new(0), &[Reply::Refused(FINAL)]),
        call: Wants::Touch,
        caps: &[0],
        ends: &[Kind::Refused, Kind::Included],
    },
    Story {
        name: "all endpoints refuse the call, for ever",
        world: || refusing(World::new(0), FINAL),
        call: Wants::Touch,
        caps: &[0],
        ends: &[Kind::Refused, Kind::Stopped(Why::Timeout)],
    },
    Story {
        name: "all endpoints refuse the approve, once",
        world: || replies(World::new(0), &[Reply::Refused(FINAL)]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "somebody else uses each nonce first",
        world: || replies(World::new(0), &[Reply::Beaten, Reply::Taken, Reply::Beaten]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "somebody else uses the nonce of bytes that may be out",
        world: || replies(World::new(NEED), &[Reply::Lost, Reply::Beaten]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the call reverts when it is included",
        world: || quirks(World::new(0), Quirks { registers_revert: 1, ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Reverted],
    },
    Story {
        name: "the approve reverts when it is included, once",
        world: || quirks(World::new(0), Quirks { approves_revert: 1, ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the approve reverts whenever it is included",
        world: || quirks(World::new(0), Quirks { approves_revert: 9, ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Stopped(Why::Exhausted)],
    },
    Story {
        name: "a plan of two steps",
        world: || quirks(World::new(0), Quirks { resets_revert: Some(0), ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the first step of two reverts when it is included, once",
        world: || quirks(World::new(0), Quirks { resets_revert: Some(1), ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "a balancer sends the bytes on twice",
        world: || replies(World::new(0), &[Reply::TakenTwice, Reply::TakenTwice]),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "the allowance is spent before it is looked at",
        world: || quirks(World::new(0), Quirks { first_approve_is_spent: true, ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        // Whoever comes back in time signs the call while it is still allowed, and sees it revert.
        ends: &[Kind::Included, Kind::Reverted],
    },
    Story {
        name: "the approve cannot be simulated at first",
        world: || quirks(World::new(0), Quirks { approves_fail: 1, ..Quirks::default() }),
        call: Wants::Register,
        caps: &[NEED],
        ends: &[Kind::Included],
    },
    Story {
        name: "nothing is granted",
        world: || World::new(0),
        call: Wants::Register,
        caps: &[NEED - 1],
        ends: &[Kind::Stopped(Why::NotGranted)],
    },
    Story {
        name: "the grant is narrowed by whoever comes back",
        world: || World::new(0),
        call: Wants::Register,
        caps: &[NEED, NEED - 1],
        ends: &[Kind::Included, Kind::Stopped(Why::NotGranted)],
    },
];

impl Story {
    /// What the caller asks of the process number `life`.
    pub(super) fn asked(&self, life: usize) -> Asked {
        let content = match self.call {
            Wants::Register => register(),
            Wants::Touch => touch(),
        };
        let cap = self.caps[life.min(self.caps.len() - 1)];
        Asked { process: life, intent: 0, content, grants: grant(cap) }
    }

    /// The caller tries again where a step of the plan was refused: it says that later may be better.
    pub(super) fn go_on(&self, sea: &Rc<RefCell<Sea>>, life: usize, mut end: End) -> End {
        for _ in 0..2 {
            if end == End::Stopped(Why::StepRefused) {
                end = Life::new(sea, &self.asked(life)).finish();
            }
        }
        end
    }

    /// How it may end when this has happened while nobody worked on it.
    pub(super) fn ends_after(&self, meanwhile: Meanwhile) -> Vec<Kind> {
        let mut ends = self.ends.to_vec();
        match meanwhile {
            Meanwhile::Nothing
            | Meanwhile::Out
            | Meanwhile::OutAndMined
            | Meanwhile::OutAndFinal
            | Meanwhile::Forgotten
            | Meanwhile::Late(_)
            | Meanwhile::Stranger
            | Meanwhile::StrangerFinal
            | Meanwhile::Reorganised => {}
            // The call may be out already, and the rounds may be used up.
            Meanwhile::Spent => ends.extend([Kind::Reverted, Kind::Stopped(Why::Exhausted)]),
        }
        if self.world_refuses() {
            // Bytes that are out all the same are included, and the nonce of others is used by strangers.
            ends.push(Kind::Included);
        }
        ends
    }

    fn world_refuses(&self) -> bool {
        (self.world)().refuses.is_some()
    }
}

/// What happens between the death of one process and the birth of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    Nothing,
    /// All bytes that count as sent are in a pool.
    Out,
    /// They are in a block.
    OutAndMined,
    /// They are final.
    OutAndFinal,
    /// No pool has them.
    Forgotten,
    /// They arrive at a pool only when so many blocks have come.
    Late(u32),
    /// They are lost, and somebody else uses their nonce.
    Stranger,
    /// And that is final.
    StrangerFinal,
    /// The block in which somebody else used a nonce is gone, and there is one with our bytes.
    Reorganised,
    /// Somebody else spends the allowance.
    Spent,
}

impl Meanwhile {
    pub(super) const ALL: [Self; 12] = [
        Self::Nothing,
        Self::Out,
        Self::OutAndMined,
        Self::OutAndFinal,
        Self::Forgotten,
        Self::Late(0),
        Self::Late(1),
        Self::Late(6),
        Self::Stranger,
        Self::StrangerFinal,
        Self::Reorganised,
        Self::Spent,
    ];

    /// The world after it; `None` where it cannot be.
    pub(super) fn passes(self, mut sea: Sea) -> Option<Sea> {
        let open = sea.open_bytes();
        let world = &mut sea.world;
        let blocks = |world: &mut World, count| (0..count).for_each(|_| world.tick());
        match self {
            Self::Nothing => {}
            Self::Out | Self::OutAndMined | Self::OutAndFinal => {
                open.first()?;
                open.iter().for_each(|tx| world.arrive(tx));
                let count = match self {
                    Self::OutAndMined => 1,
                    Self::OutAndFinal => 8,
                    _ => 0,
                };
                blocks(world, count);
            }
            Self::Forgotten => {
                open.first()?;
                world.forget();
            }
            Self::Late(in_blocks) => {
                world.forget();
                world.late = Some((in_blocks, open.first()?.clone()));
            }
            Self::Stranger | Self::StrangerFinal => {
                world.forget();
                world.strangers_block();
                blocks(world, if self == Self::StrangerFinal { 8 } else { 0 });
            }
            Self::Reorganised => {
                if !world.reorganise() {
                    return None;
                }
            }
            Self::Spent => world.spending_block(),
        }
        Some(sea)
    }
}

fn replies(mut world: World, replies: &[Reply]) -> World {
    world.replies = replies.iter().copied().collect();
    world
}

fn quirks(mut world: World, quirks: Quirks) -> World {
    world.quirks = quirks;
    world
}

fn refusing(mut world: World, kind: RefusalKind) -> World {
    world.refuses = Some(kind);
    world
}
