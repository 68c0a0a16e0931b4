//! Work that a device does apart from the guest's call: loads and moves of memory, how much of it may wait, and what comes of it.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abi::AbiError;
use device::{
    Abilities, Device, DeviceInfo, Error, Health, Module, Moved, Region, RegionSpec, RegionTable,
    Side,
};
use host::Limits;
use tokio::time::timeout;
use wasmtime::Val;

use crate::fake_device::FakeDevice;
use crate::harness::{DATA_AT, Guest, KIT, Setup, block_on, name, u32_val};

type Work = Box<dyn FnOnce() + Send>;

/// A device that keeps what it is told to do until the test lets it.
struct Keeping {
    device: Arc<dyn Device>,
    /// As much as may wait.
    room: usize,
    loads: Mutex<Vec<Work>>,
    moves: Mutex<Vec<(Range<u64>, Side, Moved)>>,
}

impl Keeping {
    fn with_room(room: usize) -> Arc<Self> {
        let (device, _) = FakeDevice::open();
        Arc::new(Self {
            device,
            room,
            loads: Mutex::default(),
            moves: Mutex::default(),
        })
    }

    fn run_loads(&self) {
        let loads = std::mem::take(&mut *self.loads.lock().unwrap());
        loads.into_iter().for_each(|load| load());
    }
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").finish_non_exhaustive()
    }
}

impl Device for Keeping {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn health(&self) -> Health {
        self.device.health()
    }

    fn regions(&self) -> &Arc<RegionTable> {
        self.device.regions()
    }

    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error> {
        self.device.new_region(spec)
    }

    fn load(&self, program: &ptx::Admitted) -> Result<Arc<dyn Module>, Error> {
        self.device.load(program)
    }

    fn defer(&self, work: Work) -> Result<(), Error> {
        let mut loads = self.loads.lock().unwrap();
        if loads.len() >= self.room {
            let (what, limit) = ("loads", self.room);
            return Err(Error::Busy { what, limit });
        }
        loads.push(work);
        Ok(())
    }

    fn prefetch(&self, _region: Arc<Region>, range: Range<u64>, side: Side, done: Moved) {
        self.moves.lock().unwrap().push((range, side, done));
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: true,
            cooperative: false,
            prefetch: true,
        }
    }
}

/// As long as a call is waited for that does not end.
const MOMENT: Duration = Duration::from_millis(20);

fn limits(loads: u64) -> Limits {
    Limits {
        loads,
        ..Limits::default()
    }
}

#[test]
fn a_load_that_finds_the_queue_full_is_over_a_quota() {
    block_on(async {
        let device = Keeping::with_room(0);
        let mut guest = Guest::start(&Setup::on(device)).await;
        let answer = guest.load_bytes(KIT.as_bytes(), b"k_store").await;
        assert_eq!(name(answer), AbiError::QuotaExceeded.name());
        let text = "too much waits already: 0 loads is the limit";
        assert_eq!(guest.last_text(), text);
        assert_eq!(guest.cuda().metrics().kernels, 0);
    });
}

#[test]
fn an_instance_has_so_many_loads_under_way_though_nobody_waits_for_them() {
    block_on(async {
        let device = Keeping::with_room(100);
        let setup = Setup {
            limits: limits(2),
            ..Setup::on(Arc::clone(&device) as Arc<dyn Device>)
        };
        let (mut guest, mut neighbour) = (Guest::start(&setup).await, Guest::start(&setup).await);
        for _ in 0..2 {
            let load = guest.load_bytes(KIT.as_bytes(), b"k_store");
            timeout(MOMENT, load).await.unwrap_err();
        }
        let answer = guest.load_bytes(KIT.as_bytes(), b"k_store").await;
        assert_eq!(name(answer), AbiError::QuotaExceeded.name());
        assert_eq!(
            guest.last_text(),
            "loads under way: 3 given, the limit is 2"
        );
        let load = neighbour.load_bytes(KIT.as_bytes(), b"k_store");
        timeout(MOMENT, load).await.unwrap_err();

        device.run_loads();
        assert_eq!(guest.cuda().metrics().kernels, 0);
        let load = guest.load_bytes(KIT.as_bytes(), b"k_store");
        timeout(MOMENT, load).await.unwrap_err();
    });
}

async fn prefetch(guest: &mut Guest, side: i32) -> i64 {
    let args = [u32_val(DATA_AT), u32_val(64), Val::I32(side)];
    guest
        .call_import(abi::MODULE, abi::FN_PREFETCH, &args)
        .await
}

#[test]
fn a_prefetch_suspends_the_guest_until_its_memory_is_there() {
    block_on(async {
        let device = Keeping::with_room(0);
        let mut guest = Guest::start(&Setup::on(Arc::clone(&device) as Arc<dyn Device>)).await;
        for (side, want) in [
            (abi::PREFETCH_DEVICE, Side::Device),
            (abi::PREFETCH_HOST, Side::Host),
        ] {
            timeout(MOMENT, prefetch(&mut guest, side))
                .await
                .unwrap_err();
            let (range, found, done) = device.moves.lock().unwrap().pop().unwrap();
            let start = u64::from(DATA_AT);
            assert_eq!((range, found), (start..start + 64, want));
            // Nobody waits any more.
            done(Ok(()));
        }
    });
}

/// What a prefetch answers that the device ends like this.
fn answer_to(end: fn(Moved)) -> (String, String) {
    block_on(async {
        let device = Keeping::with_room(0);
        let mut guest = Guest::start(&Setup::on(Arc::clone(&device) as Arc<dyn Device>)).await;
        let ended = tokio::spawn(async move {
            loop {
                if let Some((_, _, done)) = device.moves.lock().unwrap().pop() {
                    return end(done);
                }
                tokio::task::yield_now().await;
            }
        });
        let answer = prefetch(&mut guest, abi::PREFETCH_DEVICE).await;
        ended.await.unwrap();
        (name(answer), guest.last_text())
    })
}

#[test]
fn a_prefetch_that_the_device_does_not_follow_is_no_failure() {
    let nothing = (String::from("0"), String::new());
    assert_eq!(answer_to(|done| done(Ok(()))), nothing);
    assert_eq!(answer_to(drop), nothing);
}

#[test]
fn a_prefetch_on_a_lost_device_says_so() {
    let lost = |done: Moved| {
        let reason = "a kernel faulted".into();
        done(Err(Error::DeviceLost { reason }));
    };
    let (code, text) = answer_to(lost);
    assert_eq!(code, AbiError::DeviceLost.name());
    assert!(text.contains("a kernel faulted"), "{text}");
}

#[test]
fn features_are_the_devices_abilities() {
    block_on(async {
        let mut guest = Guest::start(&Setup::on(Keeping::with_room(0))).await;
        let args = [u32_val(DATA_AT), u32_val(200)];
        let size = guest
            .call_import(abi::MODULE, abi::FN_DEVICE_INFO, &args)
            .await;
        assert!(size > 0, "{}", guest.last_text());
        let bytes = guest.read_memory(DATA_AT, usize::try_from(size).unwrap());
        let info = abi::info::DeviceInfo::from_bytes(&bytes);
        let checking = abi::info::FEATURE_CONFINED | abi::info::FEATURE_TRAPPING;
        assert_eq!(info.features, checking | abi::info::FEATURE_PREFETCH);
    });
}
