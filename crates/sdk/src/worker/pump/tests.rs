//! The pump, without a server: what it calls, and when.

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(10);
const PARK: Duration = Duration::from_secs(20);

/// A pump and the time it is told.
struct Bench {
    pump: Pump,
    now: Instant,
}

/// A call in short.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    capacity: usize,
    waits: bool,
    results: Vec<String>,
    heartbeats: usize,
}

fn made(capacity: usize, waits: bool, results: &[&str], heartbeats: usize) -> Made {
    Made { capacity, waits, results: results.iter().map(|id| (*id).to_owned()).collect(), heartbeats }
}

fn result(id: &str) -> TaskResult {
    let output = serde_json::value::to_raw_value(&1).unwrap();
    TaskResult {
        task_id: id.to_owned(),
        lease_token: "lease".to_owned(),
        outcome: Outcome::Completed { output },
        artifacts: Vec::new(),
        lines: Vec::new(),
    }
}

fn rejected(id: &str, code: &str) -> Rejected {
    let (task_id, lease_token) = (id.to_owned(), "lease".to_owned());
    Rejected { task_id, lease_token, code: code.to_owned(), message: "it does not fit".to_owned() }
}

impl Bench {
    fn new(hands: usize) -> Bench {
        let settings = Settings { hands, park: PARK, moment: Duration::from_millis(1) };
        Bench { pump: Pump::new(settings), now: Instant::now() }
    }

    /// The call that the pump makes now.
    fn call(&mut self) -> (CallId, Made) {
        match self.pump.next(self.now) {
            Next::Call(call) => {
                let results = self.pump.results_of(call.id).iter().map(|result| result.task_id.clone()).collect();
                let (capacity, waits, heartbeats) = (call.capacity, !call.wait.is_zero(), call.heartbeats.len());
                (call.id, Made { capacity, waits, results, heartbeats })
            }
            other => panic!("no call: {other:?}"),
        }
    }

    /// The pump waits; for how long, if not for ever.
    fn waits(&mut self) -> Option<Duration> {
        match self.pump.next(self.now) {
            Next::Wait(moment) => moment.map(|moment| moment.duration_since(self.now)),
            other => panic!("it does not wait: {other:?}"),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// The call is answered with so many tasks.
    fn answer(&mut self, call: CallId, tasks: usize) -> Vec<Ticket> {
        self.pump.answered(call, tasks, &[]);
        (0..tasks).map(|_| self.pump.took(self.now, HEARTBEAT)).collect()
    }

    /// A worker that holds so many tasks, with no call under way.
    fn holding(hands: usize, tasks: usize) -> (Bench, Vec<Ticket>) {
        let mut bench = Bench::new(hands);
        let (call, _) = bench.call();
        let held = bench.answer(call, tasks);
        (bench, held)
    }

    fn end(&mut self, ticket: Ticket, id: &str) {
        self.pump.ended(ticket, Some(result(id)));
    }
}

#[test]
fn an_idle_worker_offers_all_its_hands_and_waits() {
    let mut bench = Bench::new(8);
    assert_eq!(bench.call().1, made(8, true, &[], 0));
    assert_eq!(bench.waits(), None);
}

#[test]
fn a_short_task_costs_one_call() {
    let mut bench = Bench::new(8);
    let (mut call, _) = bench.call();
    for step in ["a", "b", "c"] {
        let task = bench.answer(call, 1)[0];
        assert_eq!(bench.waits(), Some(Duration::from_millis(1)), "it is given a moment");
        bench.end(task, step);
        let (next, carried) = bench.call();
        assert_eq!(carried, made(8, true, &[step], 0));
        assert_eq!(bench.waits(), None);
        call = next;
    }
}

#[test]
fn a_task_that_takes_longer_leaves_the_other_hands_to_be_offered() {
    let (mut bench, _) = Bench::holding(8, 3);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.call().1, made(5, true, &[], 0));
}

#[test]
fn outcomes_that_come_while_an_offer_waits_go_by_a_call_that_does_not() {
    let (mut bench, held) = Bench::holding(8, 3);
    bench.pass(Duration::from_millis(1));
    bench.call();
    bench.end(held[0], "a");
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &["a"], 0));
    bench.end(held[1], "b");
    bench.end(held[2], "c");
    bench.waits(); // They gather while a report is under way.
    bench.answer(report, 0);
    assert_eq!(bench.call().1, made(0, false, &["b", "c"], 0));
}

#[test]
fn with_all_hands_full_one_call_listens_until_the_next_heartbeat() {
    let (mut bench, _) = Bench::holding(2, 2);
    assert_eq!(bench.waits(), Some(Duration::from_millis(1)));
    bench.pass(Duration::from_millis(1));
    let Next::Call(call) = bench.pump.next(bench.now) else { panic!("it listens") };
    assert_eq!((call.capacity, call.wait), (0, Duration::from_millis(7999)));
    bench.pass(call.wait);
    bench.answer(call.id, 0);
    assert_eq!(bench.call().1, made(0, true, &[], 2), "the next one has the heartbeats");
}

#[test]
fn a_hand_that_becomes_free_is_offered_while_another_call_listens() {
    let (mut bench, held) = Bench::holding(2, 2);
    bench.pass(Duration::from_millis(1));
    let (listens, _) = bench.call();
    bench.end(held[0], "a");
    let (offers, carried) = bench.call();
    assert_eq!(carried, made(1, true, &["a"], 0));
    bench.answer(offers, 1);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.waits().map(|wait| wait.as_secs()), Some(7), "the call that listens is still there");
    bench.pass(PACE);
    bench.answer(listens, 0);
    assert_eq!(bench.call().1, made(0, true, &[], 0));
}

#[test]
fn heartbeats_go_when_they_are_due_and_ride_along_before() {
    let (mut bench, held) = Bench::holding(4, 2);
    bench.pass(Duration::from_millis(1));
    bench.call();
    bench.pass(Duration::from_secs(3));
    bench.end(held[0], "a");
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &["a"], 0), "it is early for one");
    bench.answer(report, 0);
    bench.pass(Duration::from_millis(4999));
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &[], 1), "with nothing else to say it goes alone");
    assert_eq!(bench.waits().map(|wait| wait.as_millis()), None, "it is on its way");
    bench.answer(report, 0);
    assert_eq!(bench.waits(), Some(Duration::from_secs(8)));
    bench.pass(Duration::from_secs(5));
    let other = bench.pump.took(bench.now, HEARTBEAT);
    bench.end(other, "b");
    assert_eq!(bench.call().1, made(0, false, &["b"], 1), "it rides along");
}

#[test]
fn lines_wait_half_a_second_for_a_call_that_goes_out_anyway() {
    let (mut bench, held) = Bench::holding(4, 1);
    bench.pass(Duration::from_millis(1));
    bench.call();
    bench.pump.said(held[0], bench.now);
    assert_eq!(bench.waits(), Some(Duration::from_millis(500)));
    bench.pass(Duration::from_millis(500));
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &[], 1));
    bench.pump.said(held[0], bench.now);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.waits(), None, "one heartbeat of a task is under way at a time");
    bench.answer(report, 0);
    assert_eq!(bench.call().1, made(0, false, &[], 1));
}

#[test]
fn the_step_of_a_paused_run_asks_every_second() {
    let (mut bench, held) = Bench::holding(4, 1);
    bench.pass(Duration::from_millis(1));
    bench.call();
    bench.pump.paused(held[0], true);
    assert_eq!(bench.waits(), Some(Duration::from_millis(999)));
    bench.pass(Duration::from_secs(1));
    let (report, _) = bench.call();
    bench.answer(report, 0);
    assert_eq!(bench.waits(), Some(Duration::from_secs(1)));
    bench.pump.paused(held[0], false);
    bench.pass(Duration::from_secs(1));
    let (report, _) = bench.call();
    bench.answer(report, 0);
    assert_eq!(bench.waits(), Some(Duration::from_secs(8)));
}

#[test]
fn what_a_lost_call_carried_is_said_again_after_a_while() {
    let (mut bench, held) = Bench::holding(4, 3);
    bench.end(held[0], "a");
    bench.end(held[1], "b");
    bench.pump.said(held[2], bench.now);
    let (call, carried) = bench.call();
    assert_eq!(carried, made(3, true, &["a", "b"], 1));
    bench.pump.failed(call, bench.now, None, 1.0);
    assert_eq!(bench.waits(), Some(FIRST_WAIT));
    bench.pass(FIRST_WAIT);
    assert_eq!(bench.call().1, made(3, true, &["a", "b"], 1));
}

#[test]
fn a_server_that_stays_away_is_asked_ever_more_seldom() {
    let mut bench = Bench::new(1);
    let mut waits = Vec::new();
    for _ in 0..12 {
        let (call, _) = bench.call();
        bench.pump.failed(call, bench.now, None, 0.0);
        let wait = bench.waits().unwrap();
        waits.push(u64::try_from(wait.as_millis()).unwrap());
        bench.pass(wait);
    }
    assert_eq!(waits, [25, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]);
    let (call, _) = bench.call();
    bench.pump.failed(call, bench.now, Some(Duration::from_secs(30)), 0.0);
    assert_eq!(bench.waits(), Some(Duration::from_secs(30)), "a server that says when to come back is heard");
    bench.pass(Duration::from_secs(30));
    let (call, _) = bench.call();
    bench.answer(call, 0);
    bench.pass(PARK);
    let (call, _) = bench.call();
    bench.pump.failed(call, bench.now, None, 1.0);
    assert_eq!(bench.waits(), Some(FIRST_WAIT), "an answer makes it good again");
}

#[test]
fn a_server_that_answers_at_once_with_nothing_is_not_overrun() {
    let mut bench = Bench::new(1);
    let (call, _) = bench.call();
    bench.answer(call, 0);
    assert_eq!(bench.waits(), Some(PACE));
    bench.pass(PACE);
    let (call, _) = bench.call();
    bench.pass(PARK);
    bench.answer(call, 0);
    assert_eq!(bench.call().1, made(1, true, &[], 0), "one that waited is followed at once");
}

#[test]
fn what_the_server_cannot_take_fails_and_what_it_does_not_want_is_dropped() {
    let (mut bench, held) = Bench::holding(4, 2);
    bench.end(held[0], "a");
    bench.end(held[1], "b");
    let (call, _) = bench.call();
    bench.pump.answered(call, 0, &[rejected("a", "stale_attempt"), rejected("b", "output_too_large")]);
    let (call, carried) = bench.call();
    assert_eq!(carried, made(4, true, &["b"], 0));
    let Outcome::Failed { error } = &bench.pump.results_of(call)[0].outcome else { panic!("it fails") };
    assert_eq!((error.code.as_str(), error.retryable), ("output_too_large", false));
    bench.pump.answered(call, 0, &[rejected("b", "output_too_large")]);
    bench.pass(PARK);
    assert_eq!(bench.call().1, made(4, true, &[], 0), "it is not said for ever");
}

#[test]
fn a_call_that_is_too_large_is_cut_in_two() {
    let (mut bench, held) = Bench::holding(4, 4);
    for (ticket, id) in held.iter().zip(["a", "b", "c", "d"]) {
        bench.end(*ticket, id);
    }
    let (call, _) = bench.call();
    bench.pump.too_large(call, bench.now);
    let (call, carried) = bench.call();
    assert_eq!(carried, made(4, true, &["a", "b"], 0));
    assert_eq!(bench.call().1, made(0, false, &["c", "d"], 0));
    bench.pump.too_large(call, bench.now);
    let (call, carried) = bench.call();
    assert_eq!(carried, made(4, true, &["a"], 0));
    bench.pump.too_large(call, bench.now);
    let (call, _) = bench.call();
    let Outcome::Failed { error } = &bench.pump.results_of(call)[0].outcome else { panic!("it fails") };
    assert_eq!(error.code, "output_too_large");
}

#[test]
fn many_large_outcomes_do_not_go_into_one_call() {
    let (mut bench, held) = Bench::holding(4, 4);
    for ticket in held {
        let text = format!("\"{}\"", "x".repeat(CALL_BYTES / 2 - 500));
        let output = serde_json::value::RawValue::from_string(text).unwrap();
        bench.pump.ended(ticket, Some(TaskResult { outcome: Outcome::Completed { output }, ..result("large") }));
    }
    assert_eq!(bench.call().1.results.len(), 2);
    assert_eq!(bench.call().1.results.len(), 2);
}

#[test]
fn a_task_that_somebody_else_has_is_not_heard_of_any_more() {
    let (mut bench, held) = Bench::holding(1, 1);
    bench.pump.disowned(held[0]);
    bench.pass(Duration::from_millis(1));
    bench.call();
    bench.pass(HEARTBEAT * 3);
    assert_eq!(bench.waits(), None, "it keeps a hand, and sends no heartbeat");
    bench.pump.ended(held[0], None);
    assert_eq!(bench.call().1, made(1, true, &[], 0));
}

#[test]
fn a_worker_that_stops_takes_no_more_and_sees_what_it_has_to_its_end() {
    let (mut bench, held) = Bench::holding(4, 2);
    bench.end(held[0], "a");
    let (offers, _) = bench.call();
    assert_eq!(bench.pump.stop(), Some(offers));
    bench.pump.abandoned(offers, bench.now);
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &["a"], 0), "whether the server has it is not known");
    bench.answer(report, 0);
    assert_eq!(bench.call().1, made(0, true, &[], 0), "it listens: the run may be cancelled");
    bench.end(held[1], "b");
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &["b"], 0));
    assert_eq!(bench.waits(), None);
    bench.answer(report, 0);
    assert_eq!(bench.pump.next(bench.now), Next::Over);
}

#[test]
fn a_worker_that_leaves_reports_what_has_ended_all_the_same() {
    let (mut bench, held) = Bench::holding(4, 2);
    bench.pump.stop();
    bench.end(held[0], "a");
    bench.pump.leave();
    let (report, carried) = bench.call();
    assert_eq!(carried, made(0, false, &["a"], 0));
    bench.answer(report, 0);
    assert_eq!(bench.pump.next(bench.now), Next::Over);
}

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % bound
    }
}

/// A server that answers, fails and stays silent by chance, and tasks that end by chance.
struct Chaos {
    bench: Bench,
    random: Random,
    held: Vec<Ticket>,
    calls: Vec<Call>,
    ended: usize,
    /// It has left, and takes nothing that still comes.
    left: bool,
    /// Outcomes that the server has, each counted once.
    known: std::collections::BTreeSet<String>,
}

impl Chaos {
    fn step(&mut self, hands: usize) {
        let mut rounds = 0;
        while let Next::Call(call) = self.bench.pump.next(self.bench.now) {
            rounds += 1;
            assert!(rounds <= 3, "at most one call of each kind is under way");
            let offered: usize = self.calls.iter().map(|call| call.capacity).sum();
            assert!(call.capacity + offered <= hands - self.held.len(), "no more is offered than is free");
            let offers_nothing_and_waits = call.capacity == 0 && !call.wait.is_zero();
            assert!(!offers_nothing_and_waits || self.held.len() == hands, "{call:?}");
            self.calls.push(call);
        }
        assert!(self.held.len() == hands || self.calls.iter().any(|call| call.capacity > 0) || self.is_held_up());
        match self.random.below(5) {
            0 | 1 if !self.held.is_empty() => {
                let ticket = self.held.swap_remove(self.random.below(self.held.len()));
                self.ended += 1;
                self.bench.end(ticket, &self.ended.to_string());
            }
            2 | 3 if !self.calls.is_empty() => {
                let call = self.calls.swap_remove(self.random.below(self.calls.len()));
                self.answer(&call);
            }
            _ => {
                let time = Duration::from_micros(1 << self.random.below(20));
                self.bench.pass(time);
            }
        }
    }

    fn answer(&mut self, call: &Call) {
        let carried: Vec<String> =
            self.bench.pump.results_of(call.id).iter().map(|result| result.task_id.clone()).collect();
        match self.random.below(4) {
            0 => {
                // Sometimes the server took it all, and only the answer was lost.
                if self.random.below(2) == 0 {
                    self.known.extend(carried);
                }
                self.bench.pump.failed(call.id, self.bench.now, None, 0.5);
            }
            _ => {
                self.known.extend(carried);
                let tasks = if self.left { 0 } else { self.random.below(call.capacity + 1) };
                self.held.extend(self.bench.answer(call.id, tasks));
            }
        }
    }

    /// Nothing is offered for a moment: tasks were just begun, a server is away, or one answers with nothing.
    fn is_held_up(&mut self) -> bool {
        matches!(self.bench.pump.next(self.bench.now), Next::Wait(Some(_)))
    }
}

#[test]
fn whatever_happens_no_outcome_is_lost_and_no_free_hand_is_forgotten() {
    for seed in 0..200 {
        let hands = 1 + usize::try_from(seed).unwrap() % 5;
        let mut chaos = Chaos {
            bench: Bench::new(hands),
            random: Random(seed),
            held: Vec::new(),
            calls: Vec::new(),
            ended: 0,
            left: false,
            known: std::collections::BTreeSet::new(),
        };
        for _ in 0..400 {
            chaos.step(hands);
        }
        if let Some(offers) = chaos.bench.pump.stop() {
            chaos.bench.pump.abandoned(offers, chaos.bench.now);
            chaos.calls.retain(|call| call.id != offers);
        }
        chaos.bench.pump.leave();
        chaos.left = true;
        loop {
            match chaos.bench.pump.next(chaos.bench.now) {
                Next::Call(call) => chaos.calls.push(call),
                Next::Wait(Some(moment)) => chaos.bench.now = moment,
                Next::Wait(None) => {
                    let call = chaos.calls.pop().expect("it waits for an answer");
                    chaos.answer(&call);
                }
                Next::Over => break,
            }
        }
        let all: std::collections::BTreeSet<String> = (1..=chaos.ended).map(|n| n.to_string()).collect();
        assert_eq!(chaos.known, all, "seed {seed}");
    }
}
