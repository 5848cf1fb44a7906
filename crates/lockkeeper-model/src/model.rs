//! What can happen next, and what must never have happened.

use stateright::{Model, Property};

use crate::links::{pack, unpack};
use crate::scene::{CLIENTS, Expect, LEASE, NODES, Scene, micros, moment, ticks};
use crate::state::{Phase, State};

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Time passes; a clock may be off its pace.
    Tick(Pace),
    /// A client begins a round.
    Begin(usize),
    /// A client waits no longer for votes.
    Close(usize),
    /// A client lets go.
    Release(usize),
    /// A client renews its hold.
    Renew(usize),
    /// A request arrives at a node, and its answer is heard at once, or in a later tick if ever.
    Arrive {
        /// From this client.
        client: usize,
        /// At this node.
        node: usize,
        /// Which of those on their way.
        index: usize,
        /// The answer is heard at once.
        heard: bool,
    },
    /// A client hears this node's vote.
    HearVote(usize, usize),
    /// A client hears whether this node still keeps its hold.
    HearLife(usize, usize),
    /// A node loses everything and restarts.
    Crash(usize),
    /// The token key of a node ends.
    Forget(usize),
    /// A node's clock is set, by this many ticks.
    Set(usize, i8),
}

/// How clocks run in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Alike.
    Even,
    /// This node's clock gains a tick.
    Fast(usize),
    /// This client's clock loses one.
    Slow(usize),
}

impl Model for Scene {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let idle = |client: usize| state.clients[client].is_new();
        if (0..CLIENTS).all(idle) {
            // Until somebody begins nothing happens. If clients are alike, it is the first who does.
            let made = |client: usize| (self.claims[client], self.rounds[client]);
            let alike = (0..CLIENTS).all(|client| made(client) == made(0));
            let first = if alike { 1 } else { CLIENTS };
            return actions.extend((0..first).map(Action::Begin));
        }
        let more = state.now < self.ticks as i8;
        for client in 0..CLIENTS {
            let known = &state.clients[client];
            let clock = state.clock(client);
            match known.phase {
                Phase::Idle if known.claim < self.claims[client] => {
                    actions.push(Action::Begin(client));
                }
                Phase::Trying { began, .. } if state.fresh && clock > began => {
                    actions.push(Action::Close(client));
                }
                Phase::Idle | Phase::Trying { .. } => {}
                Phase::Holding { sent, renewals, .. } => {
                    actions.push(Action::Release(client));
                    if state.fresh && clock > sent && renewals < self.renewals {
                        actions.push(Action::Renew(client));
                    }
                }
            }
            for node in 0..NODES {
                let link = &state.nodes[node].links[client];
                for (index, request) in link.requests.iter().enumerate() {
                    let arrive = |heard| Action::Arrive {
                        client,
                        node,
                        index,
                        heard,
                    };
                    actions.push(arrive(true));
                    if more && state.answers(client, node, request) {
                        actions.push(arrive(false));
                    }
                }
                if state.fresh {
                    actions.extend(link.vote.map(|_| Action::HearVote(client, node)));
                    actions.extend(link.life.map(|_| Action::HearLife(client, node)));
                }
            }
        }
        if more {
            actions.push(Action::Tick(Pace::Even));
            if state.drifts < self.drifts {
                actions.extend((0..NODES).map(|node| Action::Tick(Pace::Fast(node))));
                actions.extend((0..CLIENTS).map(|client| Action::Tick(Pace::Slow(client))));
            }
        }
        for node in 0..NODES {
            let place = &state.nodes[node];
            if state.crashes < self.crashes && place.last_token > 0 {
                actions.push(Action::Crash(node));
            }
            if self.forgets(state, node) {
                actions.push(Action::Forget(node));
            }
            if state.steps < self.steps {
                actions.push(Action::Set(node, -2));
                if state.can_spare(self, node) {
                    actions.push(Action::Set(node, LEASE));
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        // What a client does at the start of a tick it may as well do later in it; and nothing is lost if it does not.
        state.fresh &= matches!(
            action,
            Action::HearVote(..) | Action::HearLife(..) | Action::Close(_) | Action::Renew(_)
        );
        match action {
            Action::Tick(pace) => self.tick(&mut state, pace),
            Action::Begin(client) => {
                let first = micros(state.clock(client));
                self.begin(&mut state, client, first);
            }
            Action::Close(client) => {
                let step = self
                    .round(&state, client)?
                    .close(moment(state.clock(client)));
                self.take(&mut state, client, step);
            }
            Action::Release(client) => self.end(&mut state, client),
            Action::Renew(client) => self.renew(&mut state, client),
            Action::Arrive {
                client,
                node,
                index,
                heard,
            } => {
                self.arrive(&mut state, client, node, index);
                if heard {
                    self.hear_vote(&mut state, client, node);
                    self.hear_life(&mut state, client, node);
                }
            }
            Action::HearVote(client, node) => self.hear_vote(&mut state, client, node)?,
            Action::HearLife(client, node) => self.hear_life(&mut state, client, node)?,
            Action::Crash(node) => {
                state.crashes += 1;
                self.crash(&mut state, node);
            }
            Action::Forget(node) => {
                let place = &mut state.nodes[node];
                (place.last_token, place.forgot) = (0, true);
            }
            Action::Set(node, by) => {
                state.steps += 1;
                state.nodes[node].ahead += by;
                expire(&mut state);
            }
        }
        let state = state.sorted();
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Scene>> {
        let mut properties = vec![
            Property::always("S1: valid holds never overlap", |_, state: &State| {
                state.holders() < 2
            }),
            Property::always("S2: tokens grow", |_, state: &State| {
                !state.seen.out_of_order
            }),
            Property::always("L4: no vote is left behind", |_, state: &State| {
                state.is_clean()
            }),
        ];
        properties.extend(self.expects.iter().map(|expect| match expect {
            Expect::Grant => {
                Property::sometimes("a grant", |_, state: &State| state.seen.grants > 0)
            }
            Expect::SecondGrant => {
                Property::sometimes("a second grant", |_, state: &State| state.seen.grants > 1)
            }
            Expect::SecondRound => {
                Property::sometimes("a grant in the second round", |_, state: &State| {
                    state.seen.second_round
                })
            }
            Expect::Renewal => {
                Property::sometimes("a renewal", |_, state: &State| state.seen.renewed)
            }
            Expect::ReAdd => {
                Property::sometimes("a re-add", |_, state: &State| state.seen.re_added)
            }
            Expect::VoteAfterCrash => {
                Property::sometimes("a vote after a crash", |_, state: &State| {
                    state.seen.vote_after_crash
                })
            }
            Expect::VoteAfterForgetting => {
                Property::sometimes("a vote after forgetting", |_, state: &State| {
                    state.seen.vote_after_forgetting
                })
            }
        }));
        properties
    }
}

impl Scene {
    fn tick(&self, state: &mut State, pace: Pace) {
        state.now += 1;
        match pace {
            Pace::Even => {}
            Pace::Fast(node) => state.nodes[node].ahead += 1,
            Pace::Slow(client) => state.clients[client].behind += 1,
        }
        state.drifts += u8::from(pace != Pace::Even);
        expire(state);
        for client in 0..CLIENTS {
            let sent = match state.clients[client].phase {
                Phase::Idle => continue,
                Phase::Trying { began, .. } => began,
                Phase::Holding { sent, .. } => sent,
            };
            if !self.is_valid(sent, state.clock(client)) {
                self.end(state, client);
            }
        }
        state.fresh = state
            .clients
            .iter()
            .any(|client| client.phase != Phase::Idle);
    }
}

impl Scene {
    /// Whether the token key of a node may have ended. It does so later if it was used since.
    fn forgets(&self, state: &State, node: usize) -> bool {
        let (clock, place) = (state.node_clock(node), &state.nodes[node]);
        self.retention.is_some_and(|retention| {
            let mut keeps = unpack(place);
            keeps.expire_token(ticks(retention), micros(clock));
            keeps.last_token < place.last_token
        })
    }
}

/// Forgets the holds that ended, so that states differ only by what stands.
fn expire(state: &mut State) {
    for node in 0..NODES {
        let clock = state.node_clock(node);
        let place = &mut state.nodes[node];
        let mut keeps = unpack(place);
        keeps.expire(micros(clock));
        pack(place, &keeps);
    }
}
