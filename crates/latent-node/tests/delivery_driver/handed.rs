//! A source that hands events out: a real lane under the driver, before a broker that says what the test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use latent_core::{Clock, DeliveredEvent, Offset, Partition, Ticket, Verdict};
use latent_node::delivery::{
    Confirmation, Delivery, DeliveryPolicy, Desk, HeadContent, Inspected, Intake, Lane, LaneCommand, LaneOptions, Listing, PinId,
    Postponement, PullEnd, ReplyId, Reporter, Settlement, Source, SourceError,
};

use crate::bench::{Bench, Driving, MemorySource, event, key_id};

const ACK_WAIT_MILLIS: u64 = 10_000;

struct Shell {
    desk: Desk,
    /// What went to the broker and was not answered.
    sent: Vec<LaneCommand>,
}

#[derive(Clone)]
struct Handed {
    shell: Arc<Mutex<Shell>>,
    clock: Arc<dyn Clock>,
}

impl Handed {
    fn new(bench: &Bench) -> Self {
        let desk = Desk::new(Lane::new(LaneOptions::of_ack_wait(ACK_WAIT_MILLIS)));
        Self { shell: Arc::new(Mutex::new(Shell { desk, sent: Vec::new() })), clock: Arc::clone(&bench.clock) }
    }

    fn with<T>(&self, call: impl FnOnce(&mut Desk) -> T) -> T {
        let mut shell = self.shell.lock().unwrap();
        let given = call(&mut shell.desk);
        while let Some(command) = shell.desk.poll(self.clock.mono()) {
            shell.sent.push(command);
        }
        given
    }

    /// Waits, in virtual time, for a command that goes to the broker.
    async fn sent<T>(&self, wanted: impl Fn(&LaneCommand) -> Option<T>) -> T {
        for _ in 0..10_000 {
            self.with(|_| ());
            let found = {
                let sent = &mut self.shell.lock().unwrap().sent;
                let found = sent.iter().position(|command| wanted(command).is_some());
                found.map(|index| sent.remove(index))
            };
            if let Some(found) = found.as_ref().and_then(&wanted) {
                return found;
            }
            tokio::time::advance(Duration::from_millis(5)).await;
            tokio::task::yield_now().await;
        }
        panic!("never sent: {:?}", self.shell.lock().unwrap().sent);
    }

    /// The broker answers the pull with this event, which nobody else has.
    async fn deliver(&self, sequence: u64, deliveries: u32, payload: &'static str) {
        self.sent(|command| matches!(command, LaneCommand::Pull { .. }).then_some(())).await;
        let (now, order) = (self.clock.mono(), u64::from(deliveries));
        let content = HeadContent::Event(key_id("a"));
        let delivery = Delivery { sequence, deliveries, order, reply: ReplyId(order), content, pin: PinId(1) };
        self.with(|desk| desk.handle_message(now, delivery, Some(event(("a", payload), Offset(sequence), 0))));
        self.with(|desk| desk.lane.handle_pull_ended(now, PullEnd::Over));
    }

    /// Answers every question from here on until the gate is open.
    async fn open_gate(&self) {
        let seen = Inspected { pending: 0, unacknowledged: 1, deliveries: 1, settled_up_to: 0, pin: Some(PinId(1)) };
        while !self.with(|desk| desk.lane.is_gate_open()) {
            let asked = |command: &LaneCommand| if let LaneCommand::Inspect { question } = command { Some(*question) } else { None };
            let question = self.sent(asked).await;
            self.with(|desk| desk.lane.handle_inspected(self.clock.mono(), question, Some(seen)));
        }
    }
}

impl Source for Handed {
    fn pull(&mut self, _: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        self.with(|desk| desk.pull(heads_max))
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let now = self.clock.mono();
        self.with(|desk| desk.begin(now, offset, attempt))
    }

    fn postpone(&mut self, offset: Offset, _: Postponement) -> Ticket<Result<(), SourceError>> {
        self.with(|desk| desk.postpone(offset))
    }

    fn condemn(&mut self, _: Offset, _: &Verdict) -> Ticket<Result<(), SourceError>> {
        Ticket::ready(Ok(()))
    }

    fn park(&mut self, _: Offset, _: &Verdict) -> Ticket<Result<(), SourceError>> {
        Ticket::ready(Ok(()))
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        self.with(|desk| desk.settle(offset, settlement))
    }

    fn report_to(&mut self, reporter: Reporter) {
        self.with(|desk| desk.report_to(reporter));
    }

    fn ended(&mut self, offset: Offset) {
        self.with(|desk| desk.ended(offset));
    }

    fn stop(&mut self) {
        self.with(Desk::stop);
    }
}

fn drive(bench: &Bench, source: &Handed) -> Driving {
    let mut binding =
        bench.binding("t", "acme", DeliveryPolicy { in_flight_max: 1, ..DeliveryPolicy::default() }, &MemorySource::default());
    binding.policy.operation_timeout_millis = 60_000;
    binding.partitions[0].source = Box::new(source.clone());
    binding.partitions[0].intake = Intake::HandedOut;
    let driving = bench.drive(vec![binding]);
    driving.handle.available("in", Partition(0), Offset(1));
    driving
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_lapses_is_stopped_and_the_event_runs_again_when_it_comes_again() {
    let bench = Bench::new(2, &["acme"]);
    let source = Handed::new(&bench);
    let driving = drive(&bench, &source);
    source.deliver(7, 1, "hang").await;
    source.open_gate().await;
    source.sent(|command| matches!(command, LaneCommand::Renew { .. }).then_some(())).await;
    assert_eq!(bench.backend.started(), ["acme/7#1"]);
    // No renewal is answered. What has lapsed is asked for again, without more than is reserved.
    source.deliver(7, 2, "ok").await;
    let stopped = bench.until(&driving, |status| status.last_outcome == Some("success")).await;
    assert_eq!((stopped.acknowledged, bench.backend.started()), (0, vec!["acme/7#1".to_owned(), "acme/7#2".to_owned()]));
    let settled = |command: &LaneCommand| if let LaneCommand::Settle { reply, .. } = command { Some(*reply) } else { None };
    assert_eq!(source.sent(settled).await, ReplyId(2));
    source.with(|desk| desk.lane.handle_settled(bench.clock.mono(), 7, Confirmation::Confirmed));
    bench.until(&driving, |status| status.acknowledged == 1).await;
    driving.stop().await;
    assert_eq!(bench.manager.snapshot().node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_stops_although_a_settlement_is_uncertain_and_a_pull_is_open() {
    let bench = Bench::new(2, &["acme"]);
    let source = Handed::new(&bench);
    let driving = drive(&bench, &source);
    source.deliver(7, 1, "ok").await;
    source.open_gate().await;
    source.sent(|command| matches!(command, LaneCommand::Settle { .. }).then_some(())).await;
    source.with(|desk| desk.lane.handle_settled(bench.clock.mono(), 7, Confirmation::Uncertain));
    source.sent(|command| matches!(command, LaneCommand::Pull { .. }).then_some(())).await;
    driving.stop().await;
    assert_eq!((bench.manager.snapshot().node.held(), source.with(|desk| desk.lane.held())), (0, 0));
}

/// A reservation stands behind the pull, and may be older than what the event's service is by then.
#[tokio::test(start_paused = true)]
async fn an_event_is_for_what_its_route_names_when_it_comes() {
    let bench = Bench::new(2, &["acme"]);
    let source = Handed::new(&bench);
    let driving = drive(&bench, &source);
    while bench.manager.snapshot().node.held() == 0 {
        tokio::task::yield_now().await;
    }
    // What was reserved for may not start any more.
    bench.publish_again("acme");
    bench.catalog.revoke(bench.publications["acme"], latent_node::RevocationScope::Whole).unwrap();
    source.deliver(7, 1, "ok").await;
    source.open_gate().await;
    source.sent(|command| matches!(command, LaneCommand::Settle { .. }).then_some(())).await;
    source.with(|desk| desk.lane.handle_settled(bench.clock.mono(), 7, Confirmation::Confirmed));
    bench.until(&driving, |status| status.acknowledged == 1).await;
    assert_eq!(bench.backend.started(), ["acme/7#1"]);
    driving.stop().await;
}
