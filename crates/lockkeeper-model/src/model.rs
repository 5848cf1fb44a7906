//! What can happen next, and what the clients make of it.

use lockkeeper::store::quorum::protocol::{Life, Refusal, Renewal, RenewalStep, Round, Step, Vote};
use stateright::{Model, Property};

use crate::links::{pack, round_id, run, unpack};
use crate::scene::{CLIENTS, Expect, LEASE, NODES, Scene, micros, moment};
use crate::state::{Phase, Request, State};

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
    /// A request arrives at a node.
    Arrive {
        /// From this client.
        client: usize,
        /// At this node.
        node: usize,
        /// Which of those on their way.
        index: usize,
    },
    /// A client hears this node's vote.
    HearVote(usize, usize),
    /// A client hears whether this node still keeps its hold.
    HearLife(usize, usize),
    /// A node loses everything and restarts.
    Crash(usize),
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
        for client in 0..CLIENTS {
            let known = &state.clients[client];
            let clock = state.clock(client);
            match known.phase {
                Phase::Idle if known.claim < self.claims[client] => {
                    actions.push(Action::Begin(client));
                }
                Phase::Idle => {}
                Phase::Trying { began, .. } if clock > began => actions.push(Action::Close(client)),
                Phase::Trying { .. } => {}
                Phase::Holding { sent, renewals, .. } => {
                    actions.push(Action::Release(client));
                    if clock > sent && renewals < self.renewals {
                        actions.push(Action::Renew(client));
                    }
                }
            }
            for node in 0..NODES {
                let link = &state.nodes[node].links[client];
                let arrive = |index| Action::Arrive {
                    client,
                    node,
                    index,
                };
                actions.extend((0..link.requests.len()).map(arrive));
                actions.extend(link.vote.map(|_| Action::HearVote(client, node)));
                actions.extend(link.life.map(|_| Action::HearLife(client, node)));
            }
        }
        if state.now < self.ticks as i8 {
            actions.push(Action::Tick(Pace::Even));
            if state.drifts < self.drifts {
                actions.extend((0..NODES).map(|node| Action::Tick(Pace::Fast(node))));
                actions.extend((0..CLIENTS).map(|client| Action::Tick(Pace::Slow(client))));
            }
        }
        for node in 0..NODES {
            let place = &state.nodes[node];
            if state.crashes < self.crashes && place.last > 0 {
                actions.push(Action::Crash(node));
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
            } => self.arrive(&mut state, client, node, index),
            Action::HearVote(client, node) => self.hear_vote(&mut state, client, node)?,
            Action::HearLife(client, node) => self.hear_life(&mut state, client, node)?,
            Action::Crash(node) => {
                state.crashes += 1;
                self.crash(&mut state, node);
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
    }

    /// Asks every node that may vote.
    fn begin(&self, state: &mut State, client: usize, first: u64) {
        let began = state.clock(client);
        state.clients[client].phase = Phase::Trying { first, began };
        let id = state.current(client).expect("it tries");
        for node in 0..NODES {
            self.connect(state, client, node);
            let link = &mut state.nodes[node].links[client];
            let admission = link.admission.expect("connected");
            if admission.sits_out(moment(began)).is_some() {
                let ready_in = std::time::Duration::ZERO;
                link.vote = Some(Vote::SittingOut { ready_in });
            } else {
                let floor = admission.floor;
                link.requests.push(Request::Ask { id, first, floor });
                link.requests.sort();
            }
        }
        // Who sits out is known without asking.
        for node in 0..NODES {
            if state.nodes[node].links[client].vote.is_some() && state.current(client) == Some(id) {
                self.hear_vote(state, client, node);
            }
        }
    }

    /// The round that a client tries, as far as it heard.
    fn round(&self, state: &State, client: usize) -> Option<Round> {
        let Phase::Trying { first, began } = state.clients[client].phase else {
            return None;
        };
        let id = round_id(state.current(client)?);
        let mut round = Round::new(self.terms, id, run(first), self.lease(), moment(began));
        for (node, place) in state.nodes.iter().enumerate() {
            if let Some(vote) = place.links[client].voted {
                let step = round.vote(node, vote, moment(began));
                assert_eq!(step, Step::Wait, "decided before");
            }
        }
        Some(round)
    }

    fn hear_vote(&self, state: &mut State, client: usize, node: usize) -> Option<()> {
        let mut round = self.round(state, client)?;
        let now = moment(state.clock(client));
        let link = &mut state.nodes[node].links[client];
        let vote = link.vote.take()?;
        link.voted = Some(vote);
        let step = round.vote(node, vote, now);
        if matches!(step, Step::Granted(_)) {
            let voted = |at: usize| {
                let place = &state.nodes[at];
                place.boot >= 0 && place.links[client].voted == Some(Vote::Yes)
            };
            // The vote may be that of the run before.
            let again = |at: usize| {
                let hold = state.nodes[at].hold;
                hold.is_some_and(|kept| Some(kept.id) == state.current(client))
            };
            state.seen.vote_after_crash |= (0..NODES).any(|at| voted(at) && again(at));
        }
        self.take(state, client, step);
        Some(())
    }

    /// Does what the protocol says.
    fn take(&self, state: &mut State, client: usize, step: Step) {
        match step {
            Step::Wait => {}
            Step::Granted(granted) => {
                let Phase::Trying { first, began } = state.clients[client].phase else {
                    return;
                };
                assert_eq!(granted.run.first, first, "its own tokens");
                state.seen.out_of_order |= first <= state.seen.highest;
                state.seen.highest = state.seen.highest.max(first);
                state.seen.grants = (state.seen.grants + 1).min(2);
                self.forget(state, client);
                state.clients[client].phase = Phase::Holding {
                    first,
                    sent: began,
                    renewals: 0,
                    renewing: None,
                };
            }
            Step::Refused(refusal) => {
                let number = state.clients[client].number + 1;
                let claim = state.clients[client].claim;
                self.end(state, client);
                if number < self.rounds {
                    state.clients[client].claim = claim;
                    state.clients[client].number = number;
                    if let Refusal::Again { first } = refusal {
                        self.begin(state, client, first);
                    }
                }
            }
            // Votes that come after the decision do not matter to what a client does next: a withdrawal is on its
            // way to every node already.
            Step::Joined | Step::Withdraw => {}
        }
    }

    /// A round or hold is over: takes it back everywhere, and goes on with the next claim.
    fn end(&self, state: &mut State, client: usize) {
        let Some(id) = state.current(client) else {
            return;
        };
        let known = &mut state.clients[client];
        let first = match known.phase {
            Phase::Idle => return,
            Phase::Trying { first, .. } | Phase::Holding { first, .. } => first,
        };
        let held = matches!(known.phase, Phase::Holding { .. });
        known.phase = Phase::Idle;
        known.claim += 1;
        known.number = 0;
        self.forget(state, client);
        for place in &mut state.nodes {
            let link = &mut place.links[client];
            if link.admission.is_some() && (self.clean_up || held) {
                let arrived = false;
                link.requests.push(Request::Release { id, first, arrived });
            }
            // What is still to be renewed or re-added is not sent any more; what was sent may arrive.
            link.requests.sort();
        }
    }

    fn forget(&self, state: &mut State, client: usize) {
        for place in &mut state.nodes {
            let link = &mut place.links[client];
            (link.vote, link.voted, link.life, link.lived) = (None, None, None, None);
        }
    }

    fn renew(&self, state: &mut State, client: usize) {
        let clock = state.clock(client);
        let Some(id) = state.current(client) else {
            return;
        };
        self.forget(state, client);
        let phase = &mut state.clients[client].phase;
        let Phase::Holding {
            renewals, renewing, ..
        } = phase
        else {
            return;
        };
        *renewals += 1;
        *renewing = Some(clock);
        let which = *renewals;
        for node in 0..NODES {
            self.connect(state, client, node);
            let requests = &mut state.nodes[node].links[client].requests;
            requests.push(Request::Renew { id, which });
            requests.sort();
        }
    }

    fn hear_life(&self, state: &mut State, client: usize, node: usize) -> Option<()> {
        let now = moment(state.clock(client));
        let id = state.current(client)?;
        let Phase::Holding {
            first,
            renewing: Some(renewing),
            ..
        } = state.clients[client].phase
        else {
            return None;
        };
        let mut renewal = Renewal::new(self.terms, self.lease(), moment(renewing));
        for (at, place) in state.nodes.iter().enumerate() {
            if let Some(life) = place.links[client].lived {
                renewal.answer(at, life, moment(renewing));
            }
        }
        let link = &mut state.nodes[node].links[client];
        let life: Life = link.life.take()?;
        link.lived = Some(life);
        let mut re_add = |at: usize| {
            let link = &mut state.nodes[at].links[client];
            if link
                .admission
                .is_some_and(|may| may.sits_out(now).is_none())
            {
                link.requests.push(Request::ReAdd { id, first });
                link.requests.sort();
            }
        };
        match renewal.answer(node, life, now) {
            RenewalStep::Wait | RenewalStep::Unknown => {}
            RenewalStep::Renewed { re_add: nodes, .. } => {
                nodes.into_iter().for_each(&mut re_add);
                if let Phase::Holding { sent, .. } = &mut state.clients[client].phase {
                    *sent = renewing;
                }
                state.seen.renewed = true;
            }
            RenewalStep::ReAdd => re_add(node),
            RenewalStep::Lost => self.end(state, client),
        }
        Some(())
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
