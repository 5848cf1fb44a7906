//! The way between clients and nodes: what a request does when it arrives.

use lockkeeper::store::quorum::protocol::{
    Added, Ask, Check, Hold, Life, Node, RoundId, Run, Vote,
};
use lockkeeper::store::{ClaimId, KeeperId, Mode};

use crate::scene::{CLIENTS, NODES, Scene, micros, moment, tick, ticks};
use crate::state::{Id, Kept, Phase, Place, Request, State};

pub(crate) fn run(first: u64) -> Run {
    Run { first, count: 1 }
}

pub(crate) fn round_id((client, claim, number): Id) -> RoundId {
    let claim = ClaimId {
        keeper: KeeperId::from_bits(u128::from(client)),
        number: u64::from(claim),
    };
    RoundId {
        claim,
        number: u64::from(number),
    }
}

fn id(round: RoundId) -> Id {
    let keeper = round.claim.keeper.to_bits() as u8;
    (keeper, round.claim.number as u8, round.number as u8)
}

impl Scene {
    /// The id by which nodes know a round.
    fn on_the_wire(&self, id: Id) -> Id {
        if self.fresh_ids { id } else { (id.0, 0, 0) }
    }

    /// Connects, if the connection is gone or never was, and looks at the node.
    pub(crate) fn connect(&self, state: &mut State, client: usize, node: usize) {
        let (now, clock) = (moment(state.clock(client)), state.node_clock(node));
        let place = &mut state.nodes[node];
        let link = &mut place.links[client];
        if link.admission.is_none() {
            let check = Check {
                run: place.run,
                uptime: ticks(clock - place.boot),
                now: micros(clock),
                record: Some(self.terms.max_lease),
            };
            link.admission = Some(link.quarantine.connected(&self.terms, check, now));
        }
    }

    /// A request arrives.
    pub(crate) fn arrive(&self, state: &mut State, client: usize, node: usize, index: usize) {
        let request = state.nodes[node].links[client].requests[index];
        let answers = state.answers(client, node, &request);
        let current = state.current(client);
        let (clock, lease) = (state.node_clock(node), self.lease());
        let place = &mut state.nodes[node];
        let mut keeps = unpack(place);
        let mut re_added = false;
        match request {
            Request::Ask {
                id,
                first,
                mut floor,
            } => {
                if !self.token_refusal {
                    (keeps.last_token, floor) = (0, 0);
                }
                let ask = Ask {
                    round: round_id(self.on_the_wire(id)),
                    mode: Mode::Exclusive,
                    lease,
                    run: run(first),
                    floor,
                    not_after: None,
                    beside: None,
                };
                let vote = plain(keeps.acquire(&self.terms, &ask, micros(clock)));
                let link = &mut place.links[client];
                if answers {
                    link.vote = Some(vote);
                }
                if !self.repeats {
                    link.requests.remove(index);
                }
            }
            Request::Release { id, first, .. } => {
                let round = round_id(self.on_the_wire(id));
                keeps.release(&self.terms, round, run(first), micros(clock));
                let requests = &mut place.links[client].requests;
                if !self.repeats || keeps.last_token >= first {
                    // Whatever of this round still arrives does nothing, unless the node forgets that its tokens are used up.
                    let used_up = self.retention.is_none() && keeps.last_token >= first;
                    let over = |request: &Request| match request {
                        Request::Ask { id: of, .. } => *of == id && used_up,
                        Request::Release { id: of, .. } => *of == id,
                        _ => false,
                    };
                    requests.retain(|request| !over(request));
                } else {
                    let arrived = true;
                    requests[index] = Request::Release { id, first, arrived };
                }
            }
            Request::Renew { id, .. } => {
                let life = keeps.renew(round_id(self.on_the_wire(id)), lease, micros(clock));
                let link = &mut place.links[client];
                if answers {
                    link.life = Some(life);
                }
                link.requests.remove(index);
            }
            Request::ReAdd { id, first } => {
                let round = round_id(self.on_the_wire(id));
                let had = keeps.holds.len();
                let mode = Mode::Exclusive;
                let added = keeps.re_add(round, mode, run(first), lease, micros(clock));
                re_added = added == Added::Added && had == 0;
                state.seen.re_added |= re_added && current == Some(id);
                place.links[client].requests.remove(index);
            }
        }
        pack(place, &keeps);
        if let Some(kept) = &mut place.hold {
            kept.re_added |= re_added;
        }
        place.links[client].requests.sort();
    }

    /// A node loses everything and starts anew.
    pub(crate) fn crash(&self, state: &mut State, node: usize) {
        let boot = state.node_clock(node);
        let place = &mut state.nodes[node];
        (place.hold, place.last_token, place.boot) = (None, 0, boot);
        place.run += 1;
        for link in &mut place.links {
            link.admission = None;
            link.requests.clear();
        }
    }
}

/// What only shows in messages to users does not make two states of one.
fn plain(vote: Vote) -> Vote {
    match vote {
        Vote::Busy { .. } => Vote::Busy {
            free_in: None,
            holder: None,
        },
        vote => vote,
    }
}

pub(crate) fn unpack(place: &Place) -> Node {
    let hold = |kept: Kept| Hold {
        round: round_id(kept.id),
        mode: Mode::Exclusive,
        token: kept.first,
        expires: micros(kept.expires),
    };
    Node {
        holds: place.hold.map(hold).into_iter().collect(),
        last_token: place.last_token,
    }
}

pub(crate) fn pack(place: &mut Place, node: &Node) {
    let before = place.hold;
    let kept = |hold: &Hold| Kept {
        id: id(hold.round),
        first: hold.token,
        expires: tick(hold.expires),
        re_added: before.is_some_and(|kept| kept.id == id(hold.round) && kept.re_added),
    };
    assert!(node.holds.len() < 2, "exclusive holds beside each other");
    place.hold = node.holds.first().map(kept);
    place.last_token = place.last_token.max(node.last_token);
}

impl State {
    /// Nodes are alike: their order is no difference.
    pub(crate) fn sorted(mut self) -> State {
        self.nodes.sort();
        self
    }

    /// L4: who no longer counts a vote has sent its withdrawal, and that has not arrived.
    pub(crate) fn is_clean(&self) -> bool {
        (0..NODES).all(|node| {
            let place = &self.nodes[node];
            place.hold.is_none_or(|kept| {
                let client = usize::from(kept.id.0);
                let on_its_way = |request: &Request| match request {
                    Request::Release { id, arrived, .. } => *id == kept.id && !arrived,
                    _ => false,
                };
                kept.re_added
                    || self.current(client) == Some(kept.id)
                    || place.links[client].requests.iter().any(on_its_way)
            })
        })
    }

    /// Whether a client listens for the answer to this.
    pub(crate) fn answers(&self, client: usize, node: usize, request: &Request) -> bool {
        let link = &self.nodes[node].links[client];
        match (*request, self.clients[client].phase) {
            (Request::Ask { id, .. }, Phase::Trying { .. }) => {
                self.current(client) == Some(id) && link.voted.is_none()
            }
            (Request::Renew { id, which }, Phase::Holding { renewals, .. }) => {
                self.current(client) == Some(id) && which == renewals
            }
            _ => false,
        }
    }

    /// Whether setting the clock of a node is within what is covered: nobody counts on the vote of that node alone.
    pub(crate) fn can_spare(&self, scene: &Scene, node: usize) -> bool {
        (0..CLIENTS).all(|client| {
            let id = self.current(client);
            let keeps = |at: &Place| at.hold.is_some_and(|kept| Some(kept.id) == id);
            let others = (0..NODES).filter(|other| *other != node && keeps(&self.nodes[*other]));
            let link = &self.nodes[node].links[client];
            match self.clients[client].phase {
                Phase::Idle => true,
                Phase::Trying { .. } => {
                    let yes = [link.vote, link.voted].contains(&Some(Vote::Yes));
                    !yes && !keeps(&self.nodes[node])
                }
                Phase::Holding { .. } => {
                    others.count() >= scene.terms.majority && link.life != Some(Life::Alive)
                }
            }
        })
    }
}
