//! The world of the model: nodes, a broker, what is on its way between them, time; every step that may come next, and what must hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use latent_core::{ActivationOutcome, MonoTime};

use super::broker::{Broker, Waiting};
use super::node::Node;
use super::{Planted, Setting};
use crate::delivery::lane::{Delivery, Inspected, LaneCommand, PullEnd, ReplyId};
use crate::delivery::source::Settlement;
use crate::delivery::visit::Confirmation;
use crate::delivery::{SourceNews, TerminationReason};

/// On its way from the broker to a node, in the order of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToNode {
    Message(Delivery),
    PullEnded(PullEnd),
    Inspected(u64, Inspected),
    Renewed(u64, ReplyId, Confirmation),
    Settled(u64, Confirmation),
}

/// On its way to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToBroker {
    Renew(u64, ReplyId),
    Settle(u64, Settlement),
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Success,
    Failure,
    Rejection,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Deliver(usize),
    /// The broker takes what a node sent.
    Arrive(usize),
    /// A node takes what the broker sent.
    Take(usize),
    /// The answer to a settlement or a renewal is lost.
    LoseAnswer(usize),
    End(usize, u64, End),
    Tick,
    /// The pin is taken away.
    Unpin,
    Disconnect(usize),
    /// A node dies and begins again.
    Die(usize),
    /// Something that was sent on a connection which is gone arrives after all.
    Stray(usize),
}

/// How often what goes wrong may go wrong yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Faults {
    pub(super) ticks: u32,
    pub(super) unpins: u32,
    pub(super) disconnects: u32,
    pub(super) deaths: u32,
    pub(super) lost_answers: u32,
    pub(super) failures: u32,
    pub(super) rejections: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    setting: Setting,
    planted: Option<Planted>,
    pub(super) now: MonoTime,
    pub(super) broker: Broker,
    nodes: Vec<Node>,
    to_node: Vec<VecDeque<ToNode>>,
    to_broker: Vec<VecDeque<ToBroker>>,
    stray: VecDeque<ToBroker>,
    pub(super) faults: Faults,
    succeeded: BTreeSet<u64>,
    rejected: BTreeSet<u64>,
    runs: BTreeMap<u64, u32>,
    pub(super) violation: Option<String>,
}

impl World {
    pub(super) fn new(setting: Setting, planted: Option<Planted>) -> Self {
        let Setting { keys, nodes, cells, faults, .. } = setting;
        let broker = Broker::new(keys, setting.lane.ack_wait_millis, setting.cycle.policy.in_flight_max as usize);
        let mut world = Self {
            setting,
            planted,
            now: MonoTime::from_millis(1_000),
            broker,
            nodes: (0..nodes).map(|_| Node::new(setting.lane, setting.cycle, cells, planted)).collect(),
            to_node: vec![VecDeque::new(); nodes],
            to_broker: vec![VecDeque::new(); nodes],
            stray: VecDeque::new(),
            faults,
            succeeded: BTreeSet::new(),
            rejected: BTreeSet::new(),
            runs: BTreeMap::new(),
            violation: None,
        };
        world.sweep();
        world.settle_down();
        world
    }

    /// Every step that may come next.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let faults = self.faults;
        for node in 0..self.nodes.len() {
            steps.extend((self.broker.can_serve(node) && self.broker.next(self.now).is_some()).then_some(Step::Deliver(node)));
            steps.extend((!self.to_broker[node].is_empty()).then_some(Step::Arrive(node)));
            steps.extend((!self.to_node[node].is_empty()).then_some(Step::Take(node)));
            let settles = matches!(self.to_broker[node].front(), Some(ToBroker::Settle(..)));
            steps.extend((settles && faults.lost_answers > 0).then_some(Step::LoseAnswer(node)));
            for sequence in &self.nodes[node].running {
                steps.push(Step::End(node, *sequence, End::Success));
                steps.extend((faults.failures > 0).then_some(Step::End(node, *sequence, End::Failure)));
                steps.extend((faults.rejections > 0).then_some(Step::End(node, *sequence, End::Rejection)));
            }
            steps.extend((faults.disconnects > 0).then_some(Step::Disconnect(node)));
            steps.extend((faults.deaths > 0).then_some(Step::Die(node)));
        }
        steps.extend((faults.ticks > 0).then_some(Step::Tick));
        steps.extend((faults.unpins > 0 && self.broker.pin.is_some()).then_some(Step::Unpin));
        steps.extend((0..self.stray.len()).map(Step::Stray));
        steps
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Deliver(node) => {
                if let Some((delivery, is_over)) = self.broker.deliver(self.now, node) {
                    self.to_node[node].push_back(ToNode::Message(delivery));
                    if is_over {
                        self.to_node[node].push_back(ToNode::PullEnded(PullEnd::Over));
                    }
                }
            }
            Step::Arrive(node) => {
                if let Some(sent) = self.to_broker[node].pop_front() {
                    self.arrive(sent);
                    self.to_node[node].push_back(match sent {
                        ToBroker::Renew(sequence, reply) => ToNode::Renewed(sequence, reply, Confirmation::Confirmed),
                        ToBroker::Settle(sequence, _) => ToNode::Settled(sequence, Confirmation::Confirmed),
                    });
                }
            }
            Step::Take(node) => self.hand(node),
            Step::LoseAnswer(node) => {
                self.faults.lost_answers -= 1;
                if let Some(sent @ ToBroker::Settle(sequence, _)) = self.to_broker[node].pop_front() {
                    // It may have arrived, it may yet, or never.
                    self.stray.push_back(sent);
                    self.to_node[node].push_back(ToNode::Settled(sequence, Confirmation::Uncertain));
                }
            }
            Step::End(node, sequence, end) => self.end(node, sequence, end),
            Step::Tick => self.tick(),
            Step::Unpin => {
                self.faults.unpins -= 1;
                self.unpin();
            }
            Step::Disconnect(node) => {
                self.faults.disconnects -= 1;
                self.disconnect(node);
            }
            Step::Die(node) => {
                self.faults.deaths -= 1;
                self.disconnect(node);
                let Setting { lane, cycle, cells, .. } = self.setting;
                self.nodes[node] = Node::new(lane, cycle, cells, self.planted);
            }
            Step::Stray(index) => {
                if let Some(sent) = self.stray.remove(index) {
                    self.arrive(sent);
                }
            }
        }
        self.settle_down();
    }

    fn arrive(&mut self, sent: ToBroker) {
        match sent {
            ToBroker::Renew(sequence, _) => self.broker.renew(self.now, sequence),
            ToBroker::Settle(sequence, settlement) => {
                self.check_settlement(sequence, settlement);
                self.broker.settle(sequence, settlement);
            }
        }
    }

    fn hand(&mut self, node: usize) {
        let Some(taken) = self.to_node[node].pop_front() else { return };
        let now = self.now;
        let Node { lane, cycle, .. } = &mut self.nodes[node];
        match taken {
            ToNode::Message(delivery) => drop(lane.handle_message(now, delivery)),
            ToNode::PullEnded(end) => lane.handle_pull_ended(now, end),
            ToNode::Inspected(question, seen) => {
                lane.handle_inspected(now, question, Some(seen));
                if let Some(end) = lane.available_end(&seen) {
                    cycle.handle_news(now, SourceNews::Available(end));
                }
            }
            ToNode::Renewed(sequence, reply, confirmation) => lane.handle_renewed(now, sequence, reply, confirmation),
            ToNode::Settled(sequence, confirmation) => lane.handle_settled(now, sequence, confirmation),
        }
    }

    fn end(&mut self, node: usize, sequence: u64, end: End) {
        let outcome = match end {
            End::Success => {
                self.succeeded.insert(sequence);
                ActivationOutcome::Success
            }
            End::Failure => {
                self.faults.failures -= 1;
                ActivationOutcome::Timeout
            }
            End::Rejection => {
                self.faults.rejections -= 1;
                self.rejected.insert(sequence);
                ActivationOutcome::Rejected { reason: String::new() }
            }
        };
        self.nodes[node].finish(self.now, sequence, &outcome);
    }

    /// Time passes, further than any renewal is due and not as far as a lease lasts; pulls expire, and the sweep comes round.
    fn tick(&mut self) {
        self.faults.ticks = self.faults.ticks.saturating_sub(1);
        self.now = self.now.plus_millis(self.setting.tick_millis);
        let now = self.now;
        let expired: Vec<usize> = self.broker.pulls.iter().filter(|(_, pull)| pull.until <= now).map(|(node, _)| *node).collect();
        for node in expired {
            self.broker.pulls.remove(&node);
            self.to_node[node].push_back(ToNode::PullEnded(PullEnd::Over));
        }
        // First whatever their time brings, then what is new: two nodes never take time to notice it.
        self.settle_down();
        self.sweep();
    }

    fn sweep(&mut self) {
        let seen = self.broker.inspect();
        for Node { lane, cycle, .. } in &mut self.nodes {
            if let Some(end) = lane.available_end(&seen) {
                cycle.handle_news(self.now, SourceNews::Available(end));
            }
        }
    }

    fn unpin(&mut self) {
        let Some((_, holder)) = self.broker.pin.take() else { return };
        if self.broker.pulls.remove(&holder).is_some() {
            self.to_node[holder].push_back(ToNode::PullEnded(PullEnd::PinLost));
        }
    }

    /// What is on its way to the broker may arrive at any time; what was on its way from it is lost.
    fn disconnect(&mut self, node: usize) {
        self.broker.pulls.remove(&node);
        if self.broker.pin.is_some_and(|(_, holder)| holder == node) {
            self.broker.pin = None;
        }
        let sent: Vec<_> = self.to_broker[node].drain(..).collect();
        // A renewal that strays does what a settlement does not: nothing for long.
        self.stray.extend(sent.iter().filter(|sent| matches!(sent, ToBroker::Settle(..))));
        let lost: Vec<_> = self.to_node[node].drain(..).collect();
        let lane = &mut self.nodes[node].lane;
        let of_sent = sent.into_iter().filter_map(|sent| if let ToBroker::Settle(sequence, _) = sent { Some(sequence) } else { None });
        let of_lost = lost.into_iter().filter_map(|lost| if let ToNode::Settled(sequence, _) = lost { Some(sequence) } else { None });
        for sequence in of_sent.chain(of_lost) {
            lane.handle_settled(self.now, sequence, Confirmation::Uncertain);
        }
        lane.handle_connection_lost();
        lane.handle_connected();
    }

    fn settle_down(&mut self) {
        loop {
            for node in 0..self.nodes.len() {
                for command in self.nodes[node].settle_down(self.now) {
                    self.send(node, command);
                }
                self.check(node);
            }
            // Where answers take no time.
            let waiting = (0..self.nodes.len()).find(|node| !self.to_node[*node].is_empty());
            let Some(node) = waiting.filter(|_| !self.setting.slow_answers) else { return };
            self.hand(node);
        }
    }

    fn send(&mut self, node: usize, command: LaneCommand) {
        match command {
            LaneCommand::Inspect { question } => self.to_node[node].push_back(ToNode::Inspected(question, self.broker.inspect())),
            LaneCommand::Pull { pin, batch_max, expires_millis } => {
                let is_wrong = pin.is_some() && pin != self.broker.pin.map(|(pin, _)| pin);
                if is_wrong {
                    self.to_node[node].push_back(ToNode::PullEnded(PullEnd::PinLost));
                } else {
                    let until = self.now.plus_millis(expires_millis);
                    self.broker.pulls.insert(node, Waiting { pin, left: batch_max, until });
                }
            }
            LaneCommand::Renew { sequence, reply } if !self.setting.slow_answers => {
                self.broker.renew(self.now, sequence);
                self.to_node[node].push_back(ToNode::Renewed(sequence, reply, Confirmation::Confirmed));
            }
            LaneCommand::Renew { sequence, reply } => self.to_broker[node].push_back(ToBroker::Renew(sequence, reply)),
            LaneCommand::Settle { sequence, settlement, .. } => self.to_broker[node].push_back(ToBroker::Settle(sequence, settlement)),
            _ => {}
        }
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Nothing is settled without its reason.
    fn check_settlement(&mut self, sequence: u64, settlement: Settlement) {
        let right = match settlement {
            Settlement::Acknowledged => self.succeeded.contains(&sequence),
            Settlement::Terminated(TerminationReason::Rejected) => self.rejected.contains(&sequence),
            Settlement::Terminated(TerminationReason::Exhausted) => {
                let runs = self.runs.get(&sequence).copied().unwrap_or_default();
                let deliveries = self.broker.messages.get(&sequence).map_or(0, |message| message.deliveries);
                // Each delivery to somebody else counts as a run.
                runs + deliveries > self.setting.cycle.policy.deliveries_max
            }
            Settlement::Terminated(TerminationReason::Undecodable) => false,
        };
        if !right {
            self.violate(format!("{sequence} is settled as {settlement:?} without the right"));
        }
    }

    fn check(&mut self, node: usize) {
        if let Some(what) = self.nodes[node].overdrawn.take() {
            self.violate(format!("node {node} {what}"));
        }
        for sequence in std::mem::take(&mut self.nodes[node].told_settled) {
            if !self.broker.is_settled(sequence) {
                self.violate(format!("node {node} takes {sequence} as settled, and it is not"));
            }
        }
        for sequence in std::mem::take(&mut self.nodes[node].begun) {
            *self.runs.entry(sequence).or_default() += 1;
            self.check_begun(node, sequence);
        }
    }

    fn check_begun(&mut self, node: usize, sequence: u64) {
        let key = |sequence: &u64| self.broker.messages.get(sequence).map(|message| message.key);
        let same = |other: &u64| key(other) == key(&sequence);
        if let Some(earlier) = (1..sequence).find(|earlier| same(earlier) && !self.broker.is_settled(*earlier)) {
            return self.violate(format!("{sequence} begins on node {node} before {earlier} of its key is settled"));
        }
        // A run of what somebody else has settled meanwhile, too late, is nobody's: it settles nothing any more.
        let counts = |running: &u64| self.setting.strict || !self.broker.is_settled(*running);
        let is_live = |running: &u64| same(running) && counts(running);
        let here = self.nodes[node].running.iter().filter(|running| same(running)).count();
        let elsewhere = self.nodes.iter().enumerate().find(|(other, elsewhere)| *other != node && elsewhere.running.iter().any(is_live));
        let other = elsewhere.map(|(other, _)| other);
        if here > 1 {
            self.violate(format!("{sequence} begins on node {node}, which runs its key already"));
        } else if let Some(other) = other.filter(|_| counts(&sequence)) {
            self.violate(format!("{sequence} begins on node {node} while its key runs on node {other}"));
        }
    }

    /// No more faults: everything must come to its end.
    pub(super) fn run_to_the_end(&mut self) {
        self.faults = Faults::default();
        for _ in 0..1_000 {
            if self.violation.is_some() || (self.broker.all_settled() && self.nodes.iter().all(|node| node.running.is_empty())) {
                return;
            }
            while let Some(step) = self.steps().into_iter().next() {
                self.take(step);
            }
            self.tick();
            self.settle_down();
        }
        self.violate("messages are left and nothing moves".to_owned());
    }

    /// What schedules met.
    pub(super) fn redelivered(&self) -> u64 {
        self.broker.messages.values().map(|message| u64::from(message.deliveries.saturating_sub(1))).sum()
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs.values().map(|runs| u64::from(*runs)).sum()
    }
}
