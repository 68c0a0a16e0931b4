//! Engines whose memory a device can address: windows, their budget, the check that tells other engines apart, and that
//! instances leave nothing behind. What is in the memory is in `memory.rs`.

use std::time::{Duration, Instant};

use device::MAX_WINDOW_BYTES;
use host::{EngineOptions, check_engine, engine_config};
use wasmtime::{
    Config, Engine, Instance, InstanceAllocationStrategy, Module, PoolingAllocationConfig, Store,
    Trap, TypedFunc,
};

use crate::fake_device::FakeDevice;
use crate::harness::{GROW, Harness, PAGE_BYTES, cpu, guest_text_with};
use crate::memory::{SMALL_WINDOW, small_window};

#[test]
fn windows_are_powers_of_two_from_64_kib_to_4_gib() {
    for bytes in [1 << 16, SMALL_WINDOW, 1 << 31, MAX_WINDOW_BYTES] {
        let config = EngineOptions::default()
            .window_bytes(bytes)
            .config(&cpu())
            .unwrap();
        check_engine(&Engine::new(&config).unwrap(), &cpu()).unwrap();
    }
    for bytes in [
        0,
        1,
        1 << 15,
        3 << 20,
        SMALL_WINDOW + 1,
        MAX_WINDOW_BYTES + 1,
        1 << 33,
        u64::MAX,
    ] {
        let refused = EngineOptions::default()
            .window_bytes(bytes)
            .config(&cpu())
            .err()
            .unwrap();
        let text = format!(
            "a window of {bytes} bytes was asked for; it must be a power of two from 65536 to 4294967296"
        );
        assert_eq!(refused.to_string(), text);
    }
}

#[test]
fn a_memory_that_does_not_fit_its_window_is_refused() {
    let setup = small_window();
    let text = guest_text_with(&format!(r#"(memory (export "memory") 17) {GROW}"#));
    let error = Harness::with_text(&setup, &setup.engine(), &text).unwrap_err();
    let error = format!("{error:#}");
    let wanted = "a memory of 1114112 bytes does not fit the instance's window of 1048576 bytes";
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn windows_are_charged_to_a_budget() {
    let (device, _) = FakeDevice::with_budget(10 << 30);
    let engine = Engine::new(&engine_config(&device).unwrap()).unwrap();
    let module = Module::new(&engine, r#"(module (memory 1))"#).unwrap();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let mut store = Store::new(&engine, ());
        Instance::new(&mut store, &module, &[]).unwrap();
        stores.push(store);
    }
    let error = Instance::new(Store::new(&engine, ()), &module, &[]).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("a memory window with its guards needs"),
        "{error}"
    );
    assert!(error.contains("are available"), "{error}");

    stores.pop();
    Instance::new(Store::new(&engine, ()), &module, &[]).unwrap();
}

#[test]
fn the_engine_of_the_recipe_passes_the_check() {
    let engine = Engine::new(&engine_config(&cpu()).unwrap()).unwrap();
    check_engine(&engine, &cpu()).unwrap();
}

#[test]
fn other_engines_are_told_apart() {
    let ours = || engine_config(&cpu()).unwrap();
    let refusal = |config: Config| {
        let engine = Engine::new(&config).unwrap();
        check_engine(&engine, &cpu()).unwrap_err().to_string()
    };

    let pooled =
        "the engine uses the pooling allocator, which ignores memory creators; see `engine_config`";
    for mut config in [Config::new(), ours()] {
        let pool = PoolingAllocationConfig::default();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        assert_eq!(refusal(config), pooled);
    }

    let images = "the engine has `memory_init_cow` on, with which data segments cannot go to device memory; see `engine_config`";
    for mut config in [Config::new(), ours()] {
        config.memory_init_cow(true);
        assert_eq!(refusal(config), images);
    }
    assert_eq!(refusal(Config::new()), images, "images are on by default");

    let device = cpu().info().name.clone();
    let plain = format!(
        "the engine's linear memory is not memory of device `{device}`; see `engine_config`"
    );
    let mut without_images = Config::new();
    without_images.memory_init_cow(false);
    assert_eq!(refusal(without_images), plain);
    let (other, _) = FakeDevice::open();
    assert_eq!(refusal(engine_config(&other).unwrap()), plain);
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Makes and drops many instances of a text; gives how long each took.
fn churn(text: &str, then: impl Fn(&mut Store<()>, wasmtime::Result<Instance>)) -> Duration {
    const ROUNDS: u32 = 10_000;
    let (device, _) = FakeDevice::open();
    let engine = Engine::new(&engine_config(&device).unwrap()).unwrap();
    let module = Module::new(&engine, text).unwrap();
    let once = || {
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]);
        then(&mut store, instance);
    };
    (0..100).for_each(|_| once());
    let (before, started) = (resident_bytes(), Instant::now());
    (0..ROUNDS).for_each(|_| once());
    let each = started.elapsed() / ROUNDS;
    assert_eq!(device.regions().reserved_bytes(), 0);
    // Each instance touches two pages of its own: 10,000 that stayed would be 80 MB and their page tables. The rest is
    // for what other tests of this process do meanwhile.
    let gained = resident_bytes().saturating_sub(before);
    assert!(gained < 64 << 20, "{gained} bytes more are in memory");
    each
}

#[test]
fn ten_thousand_instances_leave_nothing_behind() {
    let text = r#"(module (memory (export "memory") 2) (data (i32.const 0) "x") (data (i32.const 65536) "y"))"#;
    let each = churn(text, |store, instance| {
        let memory = instance.unwrap().get_memory(&mut *store, "memory").unwrap();
        assert_eq!(memory.data(store)[PAGE_BYTES as usize], b'y');
    });
    assert!(
        each < Duration::from_millis(2),
        "an instance takes {each:?}"
    );
}

#[test]
fn instances_whose_start_fails_leave_nothing_behind() {
    let text = r#"(module (memory 2) (data (i32.const 0) "x") (data (i32.const 65536) "y")
        (func $start unreachable) (start $start))"#;
    churn(text, |_, instance| {
        let trap = instance.unwrap_err();
        assert_eq!(trap.downcast_ref(), Some(&Trap::UnreachableCodeReached));
    });
    let text = r#"(module (memory 2) (data (i32.const 0) "x") (data (i32.const 0x10000000) "y"))"#;
    churn(text, |_, instance| {
        let trap = instance.unwrap_err();
        assert_eq!(trap.downcast_ref(), Some(&Trap::MemoryOutOfBounds));
    });
}

#[test]
fn guests_that_trap_leave_nothing_behind() {
    let text = r#"(module (memory 2) (data (i32.const 0) "x") (data (i32.const 65536) "y")
        (func (export "run") (result i32) (i32.load (i32.const 0x20000))))"#;
    churn(text, |store, instance| {
        let run: TypedFunc<(), u32> = instance
            .unwrap()
            .get_typed_func(&mut *store, "run")
            .unwrap();
        let trap = run.call(store, ()).unwrap_err();
        assert_eq!(trap.downcast_ref(), Some(&Trap::MemoryOutOfBounds));
    });
}
