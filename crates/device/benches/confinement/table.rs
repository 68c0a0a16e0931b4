//! The table: medians against the original's, and what they come to over all kernels.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use crate::Form;
use crate::kernels::CLASSIC;

/// What came of one form of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// One launch, so many times.
    pub(crate) times: Vec<Duration>,
    /// Whether it wrote what the original did.
    pub(crate) equal: bool,
    /// Loading it on the device.
    pub(crate) compiled: Duration,
    /// Rewriting and verifying its text.
    pub(crate) rewritten: Duration,
    /// Why it did not run.
    pub(crate) failed: Option<String>,
}

impl Measured {
    fn median(&self) -> Option<f64> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2)?;
        Some(median.as_secs_f64() * 1e3)
    }
}

/// One kernel: its forms in the order of [`Form::ALL`].
#[derive(Debug)]
pub(crate) struct Line {
    name: &'static str,
    pub(crate) forms: Vec<Measured>,
}

impl Line {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            forms: Vec::new(),
        }
    }

    /// Whether it ran in every form, with the same bytes.
    pub(crate) fn holds(&self) -> bool {
        let mut forms = self.forms.iter();
        forms.all(|form| form.equal && form.failed.is_none())
    }

    /// How long a form takes against the original.
    fn ratio(&self, form: usize) -> Option<f64> {
        Some(self.forms.get(form)?.median()? / self.forms.first()?.median()?)
    }

    /// What rewriting takes against the driver's compiler.
    fn rewriting(&self) -> Option<f64> {
        let [original, _, confined, ..] = &self.forms[..] else {
            return None;
        };
        let share = confined.rewritten.as_secs_f64() / original.compiled.as_secs_f64();
        share.is_finite().then_some(share)
    }
}

pub(crate) fn head() -> String {
    let mut text = String::from("| kernel | original, ms |");
    for form in &Form::ALL[1..] {
        write!(text, " {form:?}, % |").expect("a string");
    }
    text.push_str(
        " bytes | loading the original, confined, ms | rewriting and verifying, ms, % of loading the original |\n\
        | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    );
    text
}

/// As per cent more or less.
fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{:+.1}", (ratio - 1.0) * 100.0))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let median = self.forms.first().and_then(Measured::median);
        write!(f, "| {} | {:.4} |", self.name, median.unwrap_or(f64::NAN))?;
        for form in 1..Form::ALL.len() {
            write!(f, " {} |", percent(self.ratio(form)))?;
        }
        let equal = if self.holds() { "same" } else { "DIFFER" };
        write!(f, " {equal} |")?;
        if let [original, _, confined, ..] = &self.forms[..] {
            let share = self.rewriting().unwrap_or(f64::NAN) * 100.0;
            write!(
                f,
                " {:.1}, {:.1} | {:.2}, {share:.0} |",
                milliseconds(original.compiled),
                milliseconds(confined.compiled),
                milliseconds(confined.rewritten),
            )?;
        }
        for (measured, form) in self.forms.iter().zip(Form::ALL) {
            if let Some(failed) = &measured.failed {
                write!(f, "\n!! {}: {failed}", self.name)?;
            } else if !measured.equal {
                write!(f, "\n!! {}: {form:?} wrote other bytes", self.name)?;
            }
        }
        Ok(())
    }
}

fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

/// Geometric means and worst kernels.
pub(crate) fn summary(lines: &[Line]) -> String {
    let mut text = String::new();
    for (what, lines) in [
        ("the classic eleven", &lines[..lines.len().min(CLASSIC)]),
        ("all", lines),
    ] {
        write!(text, "geometric mean, {what}:").expect("a string");
        for (at, form) in Form::ALL.into_iter().enumerate().skip(1) {
            let ratios: Vec<f64> = lines.iter().filter_map(|line| line.ratio(at)).collect();
            let mean = percent(geometric_mean(&ratios));
            write!(text, " {form:?} {mean} %,").expect("a string");
        }
        text.push('\n');
    }
    text.push_str("worst:");
    for (at, form) in Form::ALL.into_iter().enumerate().skip(1) {
        let ratios = lines
            .iter()
            .filter_map(|line| Some((line.ratio(at)?, line.name)));
        if let Some((ratio, name)) = ratios.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
            write!(text, " {form:?} {} % ({name}),", percent(Some(ratio))).expect("a string");
        }
    }
    let shares: Vec<f64> = lines.iter().filter_map(Line::rewriting).collect();
    let mean = geometric_mean(&shares).unwrap_or(f64::NAN) * 100.0;
    let worst = shares.iter().copied().fold(f64::NAN, f64::max) * 100.0;
    write!(
        text,
        "\nrewriting and verifying against loading the original: geometric mean {mean:.1} %, worst {worst:.1} %"
    )
    .expect("a string");
    text
}
