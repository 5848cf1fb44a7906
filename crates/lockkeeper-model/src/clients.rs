//! What the clients do, and make of what they hear.

use lockkeeper::store::quorum::protocol::{Life, Refusal, Renewal, RenewalStep, Round, Step, Vote};

use crate::links::{round_id, run};
use crate::scene::{NODES, Scene, moment};
use crate::state::{Phase, Place, Request, State};

impl Scene {
    /// Asks every node that may vote.
    pub(crate) fn begin(&self, state: &mut State, client: usize, first: u64) {
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
        // A client knows without asking which nodes sit out.
        for node in 0..NODES {
            if state.nodes[node].links[client].vote.is_some() && state.current(client) == Some(id) {
                self.hear_vote(state, client, node);
            }
        }
    }

    /// The round that a client tries, as far as it heard.
    pub(crate) fn round(&self, state: &State, client: usize) -> Option<Round> {
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

    pub(crate) fn hear_vote(&self, state: &mut State, client: usize, node: usize) -> Option<()> {
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
            let forgot =
                |place: &Place| place.forgot && place.links[client].voted == Some(Vote::Yes);
            state.seen.vote_after_forgetting |= state.nodes.iter().any(forgot);
        }
        self.take(state, client, step);
        Some(())
    }

    /// Does what the protocol says.
    pub(crate) fn take(&self, state: &mut State, client: usize, step: Step) {
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
                state.seen.second_round |= state.clients[client].number > 0;
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
                if number < self.rounds[client] {
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
    pub(crate) fn end(&self, state: &mut State, client: usize) {
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

    pub(crate) fn renew(&self, state: &mut State, client: usize) {
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

    pub(crate) fn hear_life(&self, state: &mut State, client: usize, node: usize) -> Option<()> {
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
