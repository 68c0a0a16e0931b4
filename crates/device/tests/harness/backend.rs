//! The backends that every test body runs on: each device, with texts as they are and confined in each way. One that is not there
//! is reported as ignored, by name; with `WASI_CUDA_REQUIRE_GPU=1` its absence is a failure.

use std::process::ExitCode;
use std::sync::Arc;

use device::cuda::{Compiler, Options};
use device::{Device, Error, Selector};
use libtest_mimic::{Arguments, Trial};
use ptx::{ConfineOptions, Level, WindowForm};

use super::{Admission, Rig};

/// A test: its name and its body, which panics where it fails.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    name: &'static str,
    body: fn(&Rig),
    on: On,
}

impl Case {
    /// Its name, without that of a backend.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the body.
    pub(crate) fn run(&self, rig: &Rig) {
        (self.body)(rig);
    }
}

/// The backends that a test is for.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Every,
    Isolating,
    AsItIs,
}

/// A test for every backend.
pub(crate) const fn every(name: &'static str, body: fn(&Rig)) -> Case {
    Case {
        name,
        body,
        on: On::Every,
    }
}

/// A test for backends that stop a kernel at its first fault and report it. Where nothing is checked, a fault ends the device for
/// the whole process; where kernels are confined, most are none.
pub(crate) const fn isolating(name: &'static str, body: fn(&Rig)) -> Case {
    Case {
        name,
        body,
        on: On::Isolating,
    }
}

/// A test for backends that are given texts as they are: of what cannot be confined, or is another thing then.
pub(crate) const fn as_it_is(name: &'static str, body: fn(&Rig)) -> Case {
    Case {
        name,
        body,
        on: On::AsItIs,
    }
}

/// Every device that there is, and each GPU beyond the first. One more is one more line here.
fn selectors() -> Vec<(String, Selector)> {
    // No GPU, or a driver that does not work, is for opening the first one to say.
    let gpus = device::cuda::devices().map_or(0, |names| names.len());
    let further = (1..u32::try_from(gpus).expect("a few GPUs"))
        .map(|ordinal| (format!("cuda{ordinal}"), Selector::Cuda(ordinal)));
    let first = [
        ("cpu".to_owned(), Selector::Cpu),
        ("cuda".to_owned(), Selector::Cuda(0)),
    ];
    first.into_iter().chain(further).collect()
}

/// How texts are let onto each device. One more is one more line here.
fn admissions() -> [(&'static str, Admission); 5] {
    let confined = |level, window| {
        Admission::Confined(ConfineOptions {
            level,
            window,
            clear_shared: true,
        })
    };
    [
        ("", Admission::AsTheyAre),
        ("_confined", confined(Level::Confined, WindowForm::Whole)),
        (
            "_confined_masked",
            confined(Level::Confined, WindowForm::Masked),
        ),
        ("_trapping", confined(Level::Trapping, WindowForm::Whole)),
        (
            "_trapping_masked",
            confined(Level::Trapping, WindowForm::Masked),
        ),
    ]
}

struct Backend {
    name: String,
    device: Result<Arc<dyn Device>, Error>,
    admission: Admission,
}

impl Backend {
    fn open((name, selector): (String, Selector)) -> Vec<Self> {
        let options = Options {
            compiler: Compiler::this_program(),
            ..Options::default()
        };
        let device = device::open_with(selector, &options);
        let backend = |(suffix, admission)| Self {
            name: format!("{name}{suffix}"),
            device: device.clone(),
            admission,
        };
        admissions().map(backend).into()
    }

    fn trial(&self, case: Case) -> Trial {
        let name = format!("{}::{}", self.name, case.name);
        match &self.device {
            Ok(device) => {
                let rig = Rig::with(Arc::clone(device), self.admission);
                let is_meant = match case.on {
                    On::Every => true,
                    On::Isolating => rig.isolates(),
                    On::AsItIs => rig.takes_texts_as_they_are(),
                };
                let trial = Trial::test(name, move || {
                    (case.body)(&rig);
                    Ok(())
                });
                if is_meant {
                    trial
                } else {
                    trial.with_kind("not here").with_ignored_flag(true)
                }
            }
            Err(error) => {
                let absent = matches!(error, Error::NotAvailable { .. });
                let required =
                    std::env::var_os("WASI_CUDA_REQUIRE_GPU").is_some_and(|it| it == "1");
                let reason = error.to_string();
                Trial::test(name, move || Err(reason.into()))
                    .with_kind(if absent { "absent" } else { "failed" })
                    .with_ignored_flag(absent && !required)
            }
        }
    }
}

/// Runs the cases on every backend.
pub(crate) fn run(cases: &[Case]) -> ExitCode {
    // GPUs compile in processes that run this binary.
    device::cuda::serve_compiles();
    let arguments = Arguments::from_args();
    let backends: Vec<_> = selectors().into_iter().flat_map(Backend::open).collect();
    for backend in &backends {
        if let (Err(error), Admission::AsTheyAre) = (&backend.device, backend.admission) {
            eprintln!("{}: {error}", backend.name);
        }
    }
    let trials = backends
        .iter()
        .flat_map(|backend| cases.iter().map(|&case| backend.trial(case)))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
