//! Killed at any point, it ends in the same place: every story of an intent, stopped between any two acts of its
//! process, in every world that its records allow, and taken up by another process.

mod judge;
mod life;
mod story;
mod world;

use std::{cell::RefCell, rc::Rc};

use proptest::{collection::vec, prelude::*};

use self::{
    judge::{Kind, judge, judge_all},
    life::{Asked, End, Life, Sea},
    story::{Meanwhile, STORIES, Story},
};

/// A story without anybody killed.
fn undisturbed(story: &Story) -> (Sea, usize) {
    let sea = Rc::new(RefCell::new(Sea::new((story.world)())));
    let mut life = Life::new(&sea, &story.asked(0));
    let first = life.finish();
    let acts = life.acts;
    drop(life);
    let end = story.go_on(&sea, 0, first);
    let sea = sea.borrow().clone();
    judge(&sea, &end).unwrap_or_else(|why| panic!("{}, undisturbed: {why}\n{sea:#?}", story.name));
    assert_eq!(Kind::of(&end), story.ends[0], "{}, undisturbed\n{sea:#?}", story.name);
    (sea, acts)
}

/// What is there when a process has done so many acts, and dies.
fn killed(story: &Story, sea: Sea, life: usize, acts: usize) -> (Sea, Option<End>) {
    let sea = Rc::new(RefCell::new(sea));
    let mut life = Life::new(&sea, &story.asked(life));
    let end = life.steps(acts);
    drop(life);
    let sea = sea.borrow().clone();
    (sea, end)
}

/// Takes it up again, to its end, and judges that. Says how many acts that took.
fn ends_well(story: &Story, mut sea: Sea, life: usize, allowed: &[Kind], how: &dyn Fn() -> String) -> usize {
    // The network is sound from now on.
    sea.world.replies.clear();
    let sea = Rc::new(RefCell::new(sea));
    let mut last = Life::new(&sea, &story.asked(life));
    let first = last.finish();
    let acts = last.acts;
    drop(last);
    let end = story.go_on(&sea, life, first);
    let sea = sea.borrow();
    let kind = Kind::of(&end);
    let fits = if allowed.contains(&kind) { Ok(()) } else { Err(format!("it ended as {kind:?}")) };
    if let Err(why) = fits.and_then(|()| judge(&sea, &end)) {
        panic!("{}, {}: {why}\n{:#?}", story.name, how(), *sea);
    }
    acts
}

#[test]
fn each_story_ends_as_it_should_when_nobody_is_killed() {
    for story in STORIES {
        undisturbed(story);
    }
}

#[test]
fn killed_anywhere_in_any_world_it_ends_in_the_same_place() {
    let mut worlds = 0;
    for story in STORIES {
        let (_, acts) = undisturbed(story);
        for point in 0..acts {
            let (sea, _) = killed(story, Sea::new((story.world)()), 0, point);
            for meanwhile in Meanwhile::ALL {
                for lag in [0, 6] {
                    let Some(mut sea) = meanwhile.passes(sea.clone()) else { continue };
                    sea.world.lag = lag;
                    worlds += 1;
                    let how = || format!("killed after {point} acts, then {meanwhile:?}, lag {lag}");
                    ends_well(story, sea, 1, &story.ends_after(meanwhile), &how);
                }
            }
        }
    }
    assert!(worlds > 5_000, "only {worlds} worlds were looked at");
}

#[test]
fn killed_again_while_it_is_taken_up_it_ends_in_the_same_place() {
    for story in STORIES {
        let (_, acts) = undisturbed(story);
        for point in 0..acts {
            let (sea, _) = killed(story, Sea::new((story.world)()), 0, point);
            let how = || format!("killed after {point} acts");
            let acts = ends_well(story, sea.clone(), 1, &story.ends_after(Meanwhile::Nothing), &how);
            // A part of the points each time, and all of them together.
            for again in (point % 4..acts).step_by(4) {
                let (sea, _) = killed(story, sea.clone(), 1, again);
                let how = || format!("killed after {point} acts, and again after {again}");
                ends_well(story, sea, 2, &story.ends_after(Meanwhile::Nothing), &how);
            }
        }
    }
}

#[test]
fn a_process_that_was_only_paused_does_no_harm() {
    for story in STORIES {
        let (_, acts) = undisturbed(story);
        for point in 0..acts {
            for other in (point % 4..acts).step_by(4) {
                let sea = Rc::new(RefCell::new(Sea::new((story.world)())));
                let mut paused = Life::new(&sea, &story.asked(0));
                paused.steps(point);
                let mut second = Life::new(&sea, &story.asked(1));
                let ended = second.steps(other);
                paused.finish();
                if ended.is_none() {
                    second.finish();
                }
                drop((paused, second));
                let sea = sea.borrow().clone();
                let how = || format!("paused after {point} acts while another did {other}");
                ends_well(story, sea, 2, &story.ends_after(Meanwhile::Nothing), &how);
            }
        }
    }
}

/// Two intents of one account in one process, which does something for the one and for the other in turns; it dies,
/// and the next process goes on with both.
fn side_by_side(first: &Story, second: &Story, turns: &[(usize, bool, usize)]) {
    let sea = Rc::new(RefCell::new(Sea::new((first.world)())));
    let lives = |process| {
        let second = Asked { intent: 1, ..second.asked(process) };
        [Life::new(&sea, &first.asked(process)), Life::new(&sea, &second)]
    };
    let mut process = 0;
    let mut at_work = lives(process);
    let mut done = [false; 2];
    for (whose, dies, acts) in turns {
        if !done[*whose] {
            done[*whose] = at_work[*whose].steps(*acts).is_some();
        }
        if *dies {
            process += 1;
            (at_work, done) = (lives(process), [false; 2]);
        }
    }
    sea.borrow_mut().world.replies.clear();
    process += 1;
    let [mut one, mut other] = lives(process);
    let (mut ends, mut acts) = ([None, None], 0);
    while ends.contains(&None) {
        ends[0] = ends[0].take().or_else(|| one.step());
        ends[1] = ends[1].take().or_else(|| other.step());
        acts += 1;
        assert!(acts < 10_000, "they go on for ever: {:#?}", sea.borrow());
    }
    let ends = ends.map(|end| end.expect("both have ended"));
    let sea = sea.borrow();
    judge_all(&sea, &ends).unwrap_or_else(|why| {
        panic!("{} and {}, {turns:?}: {why}\n{:#?}", first.name, second.name, *sea);
    });
}

proptest! {
    #[test]
    fn intents_of_one_account_share_its_nonces(
        first in 0..STORIES.len(),
        second in 0..STORIES.len(),
        turns in vec((0_usize..2, prop::bool::weighted(0.1), 1_usize..9), 1..24),
    ) {
        side_by_side(&STORIES[first], &STORIES[second], &turns);
    }

    #[test]
    fn killed_as_often_as_you_like_it_ends_in_the_same_place(
        story in 0..STORIES.len(),
        kills in vec((0_usize..40, 0..Meanwhile::ALL.len(), 0_u64..5), 1..6),
    ) {
        let story = &STORIES[story];
        let mut sea = Sea::new((story.world)());
        let mut allowed = story.ends_after(Meanwhile::Nothing);
        for (life, (acts, meanwhile, lag)) in kills.iter().enumerate() {
            sea = killed(story, sea, life, *acts).0;
            let meanwhile = Meanwhile::ALL[*meanwhile];
            if let Some(changed) = meanwhile.passes(sea.clone()) {
                sea = changed;
                allowed.extend(story.ends_after(meanwhile));
            }
            sea.world.lag = *lag;
        }
        ends_well(story, sea, kills.len(), &allowed, &|| format!("{kills:?}"));
    }
}
