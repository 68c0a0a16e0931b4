//! What embedders and operators are told: the audit hook, `tracing` events, and metrics.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abi::AbiError;
use abi::argv::Arg;
use device::StopReason;
use host::{Audit, Event, InstanceId, Limits};
use tracing::field::{Field, Visit};
use tracing::{Id, Metadata, Subscriber, span};

use crate::harness::{Capability, DATA_AT, Harness, KIT, Setup, Shape, assert_text_is_clean};

const FAULTS: &str = include_str!("../../fixtures/kernels/faults.ptx");

/// Events in words, of the instance that they are about.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(InstanceId, String)>>);

impl Notes {
    fn take(&self) -> Vec<(InstanceId, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Audit for Notes {
    fn record(&self, instance: InstanceId, event: &Event<'_>) {
        let note = match *event {
            Event::Launch {
                kernel, geometry, ..
            } => format!("launch {kernel} {:?}", geometry.block()),
            Event::Load {
                kernel, ptx_bytes, ..
            } => format!("load {kernel} {ptx_bytes}"),
            Event::Refuse { code, text } => format!("refuse {} {text}", code.name()),
            Event::Stop { reason } => format!("stop {reason}"),
            Event::Trap { trap } => format!("trap {} {}", trap.kind, trap.line),
            _ => "another event".into(),
        };
        self.0.lock().unwrap().push((instance, note));
    }
}

fn audited(limits: Limits) -> (Arc<Notes>, Setup) {
    let notes = Arc::new(Notes::default());
    let audit: Arc<dyn Audit> = Arc::clone(&notes) as _;
    let setup = Setup {
        limits,
        instance: Some(InstanceId::new(7)),
        audit: Some(audit),
        ..Setup::default()
    };
    (notes, setup)
}

#[test]
fn an_embedder_hears_of_loads_launches_traps_stops_and_refusals() {
    let (notes, setup) = audited(Limits {
        deadline: Some(Duration::from_millis(50)),
        ..Limits::default()
    });
    let mut harness = Harness::new(&setup);
    let kernel = harness.kernel(KIT, "k_empty");
    harness.launch(kernel, Shape::line(1, 3), &[]);
    let trap = harness.kernel(KIT, "k_trap");
    harness.launch(trap, Shape::ONE, &[]);
    let endless = harness.kernel(FAULTS, "endless");
    harness.launch(endless, Shape::ONE, &[]);
    harness.launch(0, Shape::ONE, &[]);
    harness.cuda_mut().disable_wasi_cuda();
    harness.launch(kernel, Shape::ONE, &[]);

    let notes = notes.take();
    assert!(
        notes
            .iter()
            .all(|(instance, _)| *instance == InstanceId::new(7))
    );
    let notes: Vec<_> = notes.iter().map(|(_, note)| note.as_str()).collect();
    let line = KIT
        .lines()
        .position(|line| line.contains("entry k_trap"))
        .unwrap()
        + 1;
    assert_eq!(
        notes,
        [
            &format!("load k_empty {}", KIT.len()),
            "launch k_empty [3, 1, 1]",
            &format!("load k_trap {}", KIT.len()),
            &format!("trap trap instruction {line}"),
            &format!("load endless {}", FAULTS.len()),
            &format!("stop {}", StopReason::Deadline),
            "refuse InvalidKernel no kernel 0 of this instance",
            "refuse NotAvailable ",
        ]
    );
}

/// Writes down events and spans of its thread.
#[derive(Debug, Default)]
struct Lines(Mutex<String>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wasi_cuda")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> Id {
        let mut lines = self.0.lock().unwrap();
        write!(lines, "span {}", span.metadata().name()).unwrap();
        span.record(&mut Fields(&mut lines));
        lines.push('\n');
        Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = self.0.lock().unwrap();
        lines.push_str("event");
        event.record(&mut Fields(&mut lines));
        lines.push('\n');
    }

    fn record(&self, _: &Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn traces_have_fields_and_no_addresses() {
    let lines = Arc::new(Lines::default());
    let (_, setup) = audited(Limits::default());
    let mut harness = Harness::new(&setup);
    let store = harness.kernel(KIT, "k_store");
    let past = harness.kernel(KIT, "k_past");
    tracing::subscriber::with_default(Arc::clone(&lines), || {
        let pointer = Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        };
        harness.run(store, &[pointer, Arg::U32(1)]);
        harness.launch(past, Shape::ONE, &[pointer, Arg::U64(1 << 31)]);
        harness.launch(store, Shape::ONE, &[]);
    });
    let text = lines.0.lock().unwrap().clone();
    for line in text.lines() {
        assert_text_is_clean(line, &Default::default());
    }
    for expected in [
        "span launch instance=InstanceId(7) kernel=\"k_store\"\n",
        "message=a kernel ended instance=InstanceId(7) kernel=\"k_store\" grid=[1, 1, 1] block=[1, 1, 1]",
        "message=a kernel trapped instance=InstanceId(7) kind=access out of bounds line=",
        "message=a call was refused instance=InstanceId(7) code=\"InvalidArgs\" text=\"kernel `k_store` declares 2",
    ] {
        assert!(text.contains(expected), "no `{expected}` in:\n{text}");
    }
}

#[test]
fn a_launch_that_nobody_waits_for_any_more_is_told_as_stopped() {
    let (notes, setup) = audited(Limits::default());
    let mut harness = Harness::new(&setup);
    let endless = harness.kernel(FAULTS, "endless");
    notes.take();
    harness.give_up_launch(endless);
    let notes: Vec<_> = notes.take().into_iter().map(|(_, note)| note).collect();
    assert_eq!(notes, [format!("stop {}", StopReason::Requested)]);
}

#[test]
fn the_capability_that_is_off_is_told_as_a_refusal_without_a_text() {
    let (notes, setup) = audited(Limits::default());
    let setup = Setup {
        capability: Capability::Off,
        ..setup
    };
    let mut harness = Harness::new(&setup);
    let answer = harness.load(KIT, "k_empty");
    assert_eq!(answer, i64::from(AbiError::NotAvailable.code()));
    assert_eq!(
        notes.take(),
        [(InstanceId::new(7), "refuse NotAvailable ".to_owned())]
    );
}
