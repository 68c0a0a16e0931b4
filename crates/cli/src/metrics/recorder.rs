//! What the process counts, and how Prometheus reads it: a recorder for crate `metrics` that renders the text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// Upper ends of the buckets of times, in seconds: launches take from microseconds to the deadline.
const BUCKETS: [f64; 15] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 2.5e-2, 0.1, 0.25, 1.0, 2.5, 10.0,
];

/// All metrics. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder(Arc<Mutex<BTreeMap<String, Family>>>);

/// All metrics of one name.
#[derive(Debug, Default)]
struct Family {
    help: Option<SharedString>,
    members: BTreeMap<String, Member>,
}

/// One set of labels' worth.
#[derive(Debug)]
enum Member {
    Counter(Arc<AtomicU64>),
    /// The bits of a float.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Times>),
}

/// A histogram of seconds.
#[derive(Debug, Default)]
struct Times {
    /// How many fell into each bucket, and past the last.
    counts: [AtomicU64; BUCKETS.len() + 1],
    /// Their sum, in the bits of a float.
    sum: AtomicU64,
}

impl HistogramFn for Times {
    fn record(&self, value: f64) {
        let bucket = BUCKETS.partition_point(|&end| end < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |bits: u64| Some((f64::from_bits(bits) + value).to_bits());
        // The update always gives a value, so it does not fail.
        self.sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .unwrap_or_default();
    }
}

/// Labels as the text format has them, without the braces.
fn labels(key: &Key) -> String {
    let mut text = String::new();
    for label in key.labels() {
        let value = label.value().replace('\\', r"\\").replace('"', "\\\"");
        let value = value.replace('\n', r"\n");
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        write!(text, "{comma}{}=\"{value}\"", label.key()).unwrap_or_default();
    }
    text
}

impl Recorder {
    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the metric of a key, which is made if there is none.
    fn with<R>(&self, key: &Key, new: fn() -> Member, then: impl FnOnce(&Member) -> R) -> R {
        let mut families = self.families();
        let family = families.entry(key.name().to_owned()).or_default();
        then(family.members.entry(labels(key)).or_insert_with(new))
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        let mut families = self.families();
        families.entry(name.as_str().to_owned()).or_default().help = Some(help);
    }

    /// The text that Prometheus reads.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.families() {
            // Writing to a string does not fail.
            family.render(name, &mut text).unwrap_or_default();
        }
        text
    }
}

impl Family {
    fn render(&self, name: &str, text: &mut String) -> std::fmt::Result {
        let Some(first) = self.members.values().next() else {
            return Ok(());
        };
        if let Some(help) = &self.help {
            writeln!(text, "# HELP {name} {help}")?;
        }
        let kind = match first {
            Member::Counter(_) => "counter",
            Member::Gauge(_) => "gauge",
            Member::Histogram(_) => "histogram",
        };
        writeln!(text, "# TYPE {name} {kind}")?;
        for (labels, member) in &self.members {
            let braced = match labels.as_str() {
                "" => String::new(),
                labels => format!("{{{labels}}}"),
            };
            match member {
                Member::Counter(value) => {
                    writeln!(text, "{name}{braced} {}", value.load(Ordering::Relaxed))?;
                }
                Member::Gauge(bits) => {
                    let value = f64::from_bits(bits.load(Ordering::Relaxed));
                    writeln!(text, "{name}{braced} {value}")?;
                }
                Member::Histogram(times) => times.render(name, labels, &braced, text)?,
            }
        }
        Ok(())
    }
}

impl Times {
    fn render(
        &self,
        name: &str,
        labels: &str,
        braced: &str,
        text: &mut String,
    ) -> std::fmt::Result {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (index, count) in self.counts.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let end = BUCKETS
                .get(index)
                .map_or("+Inf".to_owned(), ToString::to_string);
            writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{end}\"}} {sum}")?;
        }
        let seconds = f64::from_bits(self.sum.load(Ordering::Relaxed));
        writeln!(text, "{name}_sum{braced} {seconds}")?;
        writeln!(text, "{name}_count{braced} {sum}")
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, help);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, help);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let new = || Member::Counter(Arc::default());
        self.with(key, new, |member| match member {
            Member::Counter(value) => Counter::from_arc(Arc::clone(value)),
            _ => Counter::noop(),
        })
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let new = || Member::Gauge(Arc::default());
        self.with(key, new, |member| match member {
            Member::Gauge(bits) => Gauge::from_arc(Arc::clone(bits)),
            _ => Gauge::noop(),
        })
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let new = || Member::Histogram(Arc::default());
        self.with(key, new, |member| match member {
            Member::Histogram(times) => Histogram::from_arc(Arc::clone(times)),
            _ => Histogram::noop(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_rendered_as_prometheus_reads_them() {
        let recorder = Recorder::default();
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("c_total", "what it counts");
            metrics::counter!("c_total", "code" => "a\"b").increment(2);
            metrics::counter!("c_total", "code" => "a\"b").increment(1);
            metrics::gauge!("g").increment(2.5);
            metrics::gauge!("g").decrement(1.0);
            metrics::histogram!("h").record(0.001);
            metrics::histogram!("h").record(100.0);
            metrics::describe_gauge!("unused", "nothing");
        });
        let text = recorder.render();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "# HELP c_total what it counts",
                "# TYPE c_total counter",
                r#"c_total{code="a\"b"} 3"#,
                "# TYPE g gauge",
                "g 1.5",
            ]
        );
        assert!(lines.contains(&r#"h_bucket{le="0.0005"} 0"#));
        assert!(lines.contains(&r#"h_bucket{le="0.001"} 1"#));
        assert!(lines.contains(&r#"h_bucket{le="+Inf"} 2"#));
        assert_eq!(lines[lines.len() - 2..], ["h_sum 100.001", "h_count 2"]);
    }
}
