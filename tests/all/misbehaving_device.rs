//! Devices that misbehave: a kernel that does not stop, a device that is lost, one that panics. Each harms the instance that it
//! misbehaves on and no other.

use std::sync::Arc;
use std::time::Duration;

use abi::AbiError;
use device::{Access, AccessSpace, Device, StopReason, Trap, TrapKind};
use host::kernel_args::LoweredArg;
use tokio::time::timeout;
use wasmtime::Val;

use crate::concurrency::{kernel, launch};
use crate::fake_device::{FakeDevice, Runs};
use crate::harness::{Guest, Harness, KIT, Setup, Shape, block_on, name};

/// Two instances on a fake device, the first of which waits in vain for a launch that was then dropped.
struct Stuck {
    runs: Arc<Runs>,
    device: Arc<dyn Device>,
    guest: Guest,
    kernel: i64,
}

impl Stuck {
    async fn new() -> Self {
        let (device, runs) = FakeDevice::open();
        let mut guest = Guest::start(&Setup::on(Arc::clone(&device))).await;
        let kernel = kernel(&mut guest, "k_empty").await;
        let mut stuck = Self {
            runs,
            device,
            guest,
            kernel,
        };
        stuck.stick().await;
        stuck
    }

    /// Drops a launch that the device does not let go of.
    async fn stick(&mut self) {
        self.runs.hold();
        let call = launch(&mut self.guest, self.kernel, &[]);
        timeout(Duration::from_millis(5), call).await.unwrap_err();
        self.runs.end_with(Ok(()));
    }

    async fn launch(&mut self) -> i64 {
        launch(&mut self.guest, self.kernel, &[]).await
    }

    #[track_caller]
    fn assert_quarantined(&self, code: i64) {
        assert_eq!(name(code), AbiError::DeadlineExceeded.name());
        let text = "an earlier kernel of this instance did not stop; its memory is quarantined until the store is dropped";
        assert_eq!(self.guest.last_text(), text);
    }
}

#[test]
fn a_kernel_that_does_not_stop_bars_every_import_of_its_instance() {
    block_on(async {
        let mut stuck = Stuck::new().await;
        for import in abi::IMPORTS {
            let zero = |ty: &abi::ValType| match ty {
                abi::ValType::I32 => Val::I32(0),
                abi::ValType::I64 => Val::I64(0),
            };
            let args: Vec<_> = import.params.iter().map(zero).collect();
            let code = stuck
                .guest
                .call_import(import.module, import.name, &args)
                .await;
            if import.module == abi::MODULE {
                stuck.assert_quarantined(code);
            } else {
                assert_eq!(name(code), AbiError::DeadlineExceeded.to_v0_2().name());
            }
        }
        let mut neighbour = Guest::start(&Setup::on(Arc::clone(&stuck.device))).await;
        let empty = kernel(&mut neighbour, "k_empty").await;
        assert_eq!(launch(&mut neighbour, empty, &[]).await, 0);
    });
}

#[test]
fn the_quarantine_ends_when_the_device_lets_go() {
    block_on(async {
        let mut stuck = Stuck::new().await;
        let code = stuck.launch().await;
        stuck.assert_quarantined(code);
        stuck.runs.release(&Ok(()));
        assert_eq!(stuck.launch().await, 0);

        stuck.stick().await;
        let code = stuck.launch().await;
        stuck.assert_quarantined(code);
        stuck.runs.release(&Ok(()));
        assert_eq!(stuck.launch().await, 0);
    });
}

#[test]
fn an_end_that_nobody_waits_for_is_not_reported() {
    block_on(async {
        let mut stuck = Stuck::new().await;
        let before = guest_state(&stuck.guest);
        let access = Access {
            address: 0,
            bytes: 4,
            space: AccessSpace::Global,
        };
        let trap = Trap {
            kind: TrapKind::OutOfBounds,
            line: 1,
            block: [0; 3],
            thread: [0; 3],
            access: Some(access),
        };
        stuck.runs.release(&Err(device::Error::Trap(trap)));
        assert_eq!(guest_state(&stuck.guest), before);
        assert_eq!(stuck.guest.cuda().metrics().traps, 0);
        assert_eq!(stuck.launch().await, 0);
        assert_eq!(guest_state(&stuck.guest), before);
    });
}

fn guest_state(guest: &Guest) -> (String, Option<Trap>, Vec<LoweredArg>) {
    let cuda = guest.cuda();
    (
        cuda.last_error(),
        cuda.last_trap(),
        cuda.last_lowered_args(),
    )
}

#[test]
fn memory_of_a_kernel_that_does_not_stop_outlives_its_store() {
    block_on(async {
        let Stuck {
            runs,
            device,
            guest,
            ..
        } = Stuck::new().await;
        drop(guest);
        assert!(device.regions().reserved_bytes() > 0);
        runs.release(&Err(device::Error::Stopped(StopReason::Requested)));
        assert_eq!(device.regions().reserved_bytes(), 0);
    });
}

#[test]
fn a_lost_device_answers_every_call() {
    let (device, runs) = FakeDevice::open();
    let mut guest = Harness::new(&Setup::on(device));
    let kernel = guest.kernel(KIT, "k_empty");
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
    runs.lose("it fell off the bus");
    let text = "device lost: it fell off the bus; the process must be restarted to use it again";

    let load = guest.load(KIT, "k_empty");
    guest.assert_refused(load, AbiError::DeviceLost, text);
    let launch = guest.launch(kernel, Shape::ONE, &[]);
    guest.assert_refused(launch, AbiError::DeviceLost, text);
    let calls = [
        (abi::FN_SYNC, vec![]),
        (abi::FN_DEVICE_INFO, vec![Val::I32(0), Val::I32(0)]),
        (
            abi::FN_KERNEL_INFO,
            vec![Val::I64(kernel), Val::I32(0), Val::I32(0)],
        ),
        (abi::FN_ALLOC, vec![Val::I64(64)]),
        (
            abi::FN_WRITE,
            vec![Val::I64(buffer), Val::I64(0), Val::I32(0), Val::I32(4)],
        ),
        (
            abi::FN_READ,
            vec![Val::I64(buffer), Val::I64(0), Val::I32(0), Val::I32(4)],
        ),
        (abi::FN_FREE, vec![Val::I64(buffer)]),
        (abi::FN_UNLOAD, vec![Val::I64(kernel)]),
        (
            abi::FN_PREFETCH,
            vec![Val::I32(0), Val::I32(4), Val::I32(0)],
        ),
        (abi::FN_FIND_KERNEL, vec![Val::I32(0), Val::I32(0)]),
    ];
    for (name, args) in calls {
        let answer = guest.call(name, &args);
        guest.assert_refused(answer, AbiError::DeviceLost, text);
    }
}

#[test]
fn a_device_that_is_lost_in_mid_launch_says_so() {
    let (device, runs) = FakeDevice::open();
    let mut guest = Harness::new(&Setup::on(device));
    let kernel = guest.kernel(KIT, "k_empty");
    let reason = "an illegal access of another's".to_owned();
    runs.end_with(Err(device::Error::DeviceLost { reason }));
    let lost = guest.launch(kernel, Shape::ONE, &[]);
    let text = "device lost: an illegal access of another's; the process must be restarted to use it again";
    guest.assert_refused(lost, AbiError::DeviceLost, text);
}

#[test]
fn a_panic_in_a_device_is_an_internal_error_and_no_more() {
    let (device, runs) = FakeDevice::open();
    let mut guest = Harness::new(&Setup::on(device));
    let kernel = guest.kernel(KIT, "k_empty");
    let text = "an import broke in the host; this is a bug in the host";

    runs.panic_in_launch();
    let broken = guest.launch(kernel, Shape::ONE, &[]);
    guest.assert_refused(broken, AbiError::Internal, text);
    runs.panic_in_load();
    // Another text than the one that is loaded already.
    let broken = guest.load(&format!("{KIT} "), "k_empty");
    guest.assert_refused(broken, AbiError::Internal, text);

    runs.end_with(Ok(()));
    assert_eq!(guest.launch(kernel, Shape::ONE, &[]), 0);
    let again = guest.kernel(&format!("{KIT} "), "k_empty");
    assert_eq!(guest.launch(again, Shape::ONE, &[]), 0);
}
