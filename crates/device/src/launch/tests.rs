mod geometry;

use ptx::{PointerParameter, Signature, WindowForm};

use super::*;
use crate::confinement::Confinement;
use crate::error::Error;
use crate::region::{RegionSpec, RegionTable};

const LIMITS: DeviceLimits = DeviceLimits::ARCHITECTURAL;

/// A program that ends at once, or keeps the launch as a device does while it runs.
#[derive(Debug)]
struct Backend {
    attributes: Attributes,
    kept: std::sync::Mutex<Option<Arc<Launch>>>,
}

impl Program for Backend {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        *self.kept.lock().unwrap() = Some(launch);
    }
}

fn parameter(index: u32, declared: &str, size: u32, class: Class, offset: u32) -> Parameter {
    Parameter {
        name: format!("p{index}"),
        offset,
        size,
        align: size.min(8),
        class,
        declared: declared.into(),
        pointer: None,
    }
}

/// A signature with the parameters given as declared type, size and class.
fn signature(declared: &[(&str, u32, Class)]) -> Signature {
    let mut size = 0_u32;
    let parameters = (0..)
        .zip(declared)
        .map(|(index, &(declared, bytes, class))| {
            let offset = size.next_multiple_of(bytes.min(8));
            size = offset + bytes;
            parameter(index, declared, bytes, class, offset)
        })
        .collect();
    Signature {
        entry: "k".into(),
        parameters,
        size,
        max_threads: None,
        required_threads: None,
        cluster: None,
        static_shared_bytes: 0,
        uses_dynamic_shared: false,
        line: 1,
    }
}

/// `(.param .u64 p, .param .u32 v)`
fn store_signature() -> Signature {
    signature(&[(".u64", 8, Class::Integer), (".u32", 4, Class::Integer)])
}

fn attributes(signature: Signature) -> Attributes {
    Attributes {
        signature,
        confinement: None,
        max_threads_per_block: 1024,
        registers: 0,
        local_bytes: 0,
        max_cooperative_blocks: 64,
    }
}

fn pointer() -> Value<'static> {
    Value::Pointer { offset: 64, len: 4 }
}

fn given(values: &[Value<'_>], signature: &Signature) -> Result<(), Error> {
    let kernel = attributes(signature.clone());
    Arguments::new(values, &kernel, IntegerPointers::Refuse).map(|_| ())
}

fn mismatch(index: usize, declared: &str, given: &str) -> Result<(), Error> {
    Err(Error::ArgumentType {
        kernel: "k".into(),
        index,
        declared: declared.into(),
        given: given.into(),
    })
}

fn on_device(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Result<Geometry, Error> {
    Geometry::new(grid, block, shared_bytes, Mode::Plain, &LIMITS, None)
}

#[test]
fn a_store_takes_a_pointer_and_an_integer_and_nothing_else() {
    let signature = store_signature();
    for (values, want) in [
        ([pointer(), Value::U32(7)], Ok(())),
        ([pointer(), Value::I32(-7)], Ok(())),
        ([Value::U64(64), Value::U32(7)], Ok(())),
        ([Value::I64(64), Value::U32(7)], Ok(())),
        ([Value::U32(64), Value::U32(7)], mismatch(0, ".u64", "u32")),
        (
            [Value::F64(64.0), Value::U32(7)],
            mismatch(0, ".u64", "f64"),
        ),
        ([pointer(), Value::F64(7.0)], mismatch(1, ".u32", "f64")),
        ([pointer(), Value::U64(7)], mismatch(1, ".u32", "u64")),
        ([pointer(), pointer()], mismatch(1, ".u32", "a pointer")),
        ([pointer(), Value::F32(7.0)], mismatch(1, ".u32", "f32")),
        ([Value::I32(64), Value::U32(7)], mismatch(0, ".u64", "i32")),
        (
            [pointer(), Value::Bytes(&[0; 8])],
            mismatch(1, ".u32", "8 bytes"),
        ),
        ([pointer(), Value::Bytes(&[7, 0, 0, 0])], Ok(())),
        ([Value::Bytes(&[0; 8]), Value::U32(7)], Ok(())),
    ] {
        assert_eq!(given(&values, &signature), want, "{values:?}");
    }
}

#[test]
fn the_count_of_arguments_is_that_of_the_parameters() {
    let signature = store_signature();
    for values in [
        &[][..],
        &[pointer()],
        &[pointer(), Value::U32(7), Value::U32(8)],
    ] {
        let want = Error::ArgumentCount {
            kernel: "k".into(),
            declared: 2,
            given: values.len(),
        };
        assert_eq!(given(values, &signature), Err(want));
    }
    assert_eq!(given(&[], &self::signature(&[])), Ok(()));
}

/// Every scalar value against every scalar parameter.
#[test]
fn scalars_match_their_size_and_class() {
    let values = [
        (Value::I32(1), "i32", 4, Class::Integer),
        (Value::U32(1), "u32", 4, Class::Integer),
        (Value::I64(1), "i64", 8, Class::Integer),
        (Value::U64(1), "u64", 8, Class::Integer),
        (Value::F32(1.0), "f32", 4, Class::Float),
        (Value::F64(1.0), "f64", 8, Class::Float),
        (pointer(), "a pointer", 8, Class::Integer),
    ];
    for size in [1, 2, 4, 8] {
        for class in [Class::Integer, Class::Float, Class::Bits, Class::Bytes] {
            let signature = signature(&[("T", size, class)]);
            for (value, name, bytes, kind) in values {
                let fits = bytes == size && (class == kind || class == Class::Bits);
                let want = if fits { Ok(()) } else { mismatch(0, "T", name) };
                assert_eq!(
                    given(&[value], &signature),
                    want,
                    "{name} for {class:?} of {size}"
                );
            }
        }
    }
}

#[test]
fn bytes_match_any_parameter_of_their_size() {
    for class in [Class::Integer, Class::Float, Class::Bits, Class::Bytes] {
        for size in [1_u32, 2, 4, 8, 12, 72] {
            let signature = signature(&[("T", size, class)]);
            for length in [size - 1, size, size + 1] {
                let bytes = vec![1; length as usize];
                let want = if length == size {
                    Ok(())
                } else {
                    mismatch(0, "T", &format!("{length} bytes"))
                };
                assert_eq!(given(&[Value::Bytes(&bytes)], &signature), want);
            }
        }
    }
}

#[test]
fn parameters_marked_as_pointers_take_pointers() {
    let mut signature = store_signature();
    signature.parameters[0].pointer = Some(PointerParameter {
        space: None,
        align: 4,
    });
    let seven = Value::U32(7);
    let kernel = attributes(signature);
    let check = |first, integers| Arguments::new(&[first, seven], &kernel, integers).map(|_| ());
    for integers in [IntegerPointers::Refuse, IntegerPointers::Accept] {
        assert_eq!(check(pointer(), integers), Ok(()));
        let bytes = Value::Bytes(&[0; 8]);
        assert_eq!(check(bytes, integers), mismatch(0, ".u64", "8 bytes"));
        assert_eq!(check(Value::U32(0), integers), mismatch(0, ".u64", "u32"));
    }
    for (value, name) in [(Value::U64(64), "u64"), (Value::I64(64), "i64")] {
        assert_eq!(
            check(value, IntegerPointers::Refuse),
            mismatch(0, ".u64", name)
        );
        assert_eq!(check(value, IntegerPointers::Accept), Ok(()));
    }
}

fn region() -> Arc<Region> {
    let spec = RegionSpec {
        window_bytes: 1 << 20,
        initial_bytes: 1 << 16,
        maximum_bytes: 1 << 20,
        reserved_bytes: 0,
        guard_bytes: 0,
    };
    Region::anonymous(&RegionTable::new(u64::MAX), spec).unwrap()
}

fn prepare(
    slot: &mut Arc<Launch>,
    values: &[Value<'_>],
    signature: &Signature,
    region: Option<&Arc<Region>>,
) -> Result<(), Error> {
    let geometry = on_device([3, 1, 1], [1, 1, 1], 0).unwrap();
    let kernel = attributes(signature.clone());
    let arguments = Arguments::new(values, &kernel, IntegerPointers::Refuse).unwrap();
    Launch::prepare(slot, geometry, arguments, region, LaunchControl::default())
}

#[test]
fn a_pointer_is_passed_on_only_if_all_its_bytes_are_addressable() {
    let region = region();
    let buffer = region.carve(100).unwrap();
    let signature = store_signature();
    let mut slot = Arc::default();
    let mut check = |offset, len| {
        let values = [Value::Pointer { offset, len }, Value::U32(7)];
        prepare(&mut slot, &values, &signature, Some(&region))
    };
    let end = 1 << 16;
    for (offset, len) in [(0, end), (end - 4, 4), (end, 0), (buffer.start(), 100)] {
        assert_eq!(check(offset, len), Ok(()), "{len} from {offset:#x}");
    }
    for (offset, len) in [
        (0, end + 1),
        (end - 4, 5),
        (end, 1),
        (end + 1, 0),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (buffer.start() - 1, 2),
        (1 << 20, 1),
        (end - 4, buffer.start()),
    ] {
        let refused = check(offset, len);
        assert!(
            matches!(refused, Err(Error::NotAddressable { index: 0, .. })),
            "{len} from {offset:#x} gave {refused:?}"
        );
    }
}

#[test]
fn a_pointer_without_memory_names_its_argument() {
    let signature = signature(&[(".u32", 4, Class::Integer), (".u64", 8, Class::Integer)]);
    let refused = prepare(
        &mut Arc::default(),
        &[Value::U32(7), pointer()],
        &signature,
        None,
    );
    assert!(
        matches!(refused, Err(Error::NotAddressable { index: 1, .. })),
        "{refused:?}"
    );
    let integer = [Value::U32(7), Value::U64(64)];
    assert_eq!(
        prepare(&mut Arc::default(), &integer, &signature, None),
        Ok(())
    );
}

#[test]
fn values_lie_at_their_offsets_and_the_rest_is_zero() {
    let mut signature = signature(&[
        (".u32", 4, Class::Integer),
        (".u64", 8, Class::Integer),
        (".f32", 4, Class::Float),
        (".f64", 8, Class::Float),
        (".s32", 4, Class::Integer),
        (".b8[3]", 3, Class::Bytes),
        (".s64", 8, Class::Integer),
        (".b64", 8, Class::Bits),
    ]);
    // An array of bytes is aligned to 1, as declared.
    signature.parameters[5].offset = 36;
    signature.parameters[6].offset = 40;
    signature.parameters[7].offset = 48;
    signature.size = 56;
    let values = [
        Value::U32(0x0403_0201),
        Value::Pointer {
            offset: 0x40,
            len: 8,
        },
        Value::F32(1.0),
        Value::F64(-2.0),
        Value::I32(-2),
        Value::Bytes(&[9, 8, 7]),
        Value::I64(-3),
        Value::U64(u64::MAX - 1),
    ];
    let mut slot = Arc::default();
    prepare(&mut slot, &values, &signature, Some(&region())).unwrap();
    let mut want = vec![0; 56];
    want[0..4].copy_from_slice(&[1, 2, 3, 4]);
    want[8] = 0x40;
    want[16..20].copy_from_slice(&1_f32.to_le_bytes());
    want[24..32].copy_from_slice(&(-2_f64).to_le_bytes());
    want[32..36].copy_from_slice(&(-2_i32).to_le_bytes());
    want[36..39].copy_from_slice(&[9, 8, 7]);
    want[40..48].copy_from_slice(&(-3_i64).to_le_bytes());
    want[48..56].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    assert_eq!(slot.params().backing(), want);
    assert_eq!(slot.params().slots(), [0, 8, 16, 24, 32, 36, 40, 48]);
}

#[test]
fn every_block_is_handed_out_once_and_again_for_the_next_launch() {
    let signature = store_signature();
    let values = [Value::U64(1), Value::U32(2)];
    let mut slot = Arc::default();
    for _ in 0..2 {
        prepare(&mut slot, &values, &signature, None).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| slot.take_block()).collect();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(slot.take_block(), None);
    }
}

#[test]
fn a_refused_launch_leaves_the_one_before_it_as_it_was() {
    let signature = store_signature();
    let mut slot = Arc::default();
    prepare(&mut slot, &[Value::U64(5), Value::U32(6)], &signature, None).unwrap();
    let before = slot.params().backing().to_vec();
    let refused = prepare(&mut slot, &[pointer(), Value::U32(7)], &signature, None);
    assert!(matches!(
        refused,
        Err(Error::NotAddressable { index: 0, .. })
    ));
    assert_eq!(slot.params().backing(), before);
}

#[test]
fn a_slot_is_used_again_once_the_device_has_let_go() {
    let signature = store_signature();
    let values = [Value::U64(1), Value::U32(2)];
    let program = Arc::new(Backend {
        attributes: attributes(store_signature()),
        kept: std::sync::Mutex::default(),
    });
    let mut slot = Arc::default();
    prepare(&mut slot, &values, &signature, Some(&region())).unwrap();
    let first = Arc::as_ptr(&slot);
    let completion = Arc::clone(&slot).start(Arc::clone(&program) as Arc<dyn Program>);

    let mut other = Arc::clone(&slot);
    prepare(&mut other, &values, &signature, None).unwrap();
    assert_ne!(Arc::as_ptr(&other), first, "the device holds the first");
    assert!(slot.region().is_some(), "a running launch keeps its memory");

    let signal = Arc::clone(slot.signal());
    drop(program.kept.lock().unwrap().take());
    signal.complete(Ok(()));
    assert_eq!(completion.wait(), Ok(()));
    prepare(&mut slot, &values, &signature, None).unwrap();
    assert_eq!(Arc::as_ptr(&slot), first);
    assert!(slot.region().is_none());
}

/// A window of 1 MiB, and one of 4 GiB.
fn windows() -> [Arc<Region>; 2] {
    let whole = RegionSpec {
        window_bytes: 1 << 32,
        initial_bytes: 1 << 16,
        maximum_bytes: 1 << 32,
        reserved_bytes: 0,
        guard_bytes: 0,
    };
    [
        region(),
        Region::anonymous(&RegionTable::new(u64::MAX), whole).unwrap(),
    ]
}

#[test]
fn a_confined_kernel_runs_on_the_windows_that_it_is_confined_to() {
    let [small, whole] = windows();
    assert_eq!(small.form(), Some(WindowForm::Masked));
    assert_eq!(whole.form(), Some(WindowForm::Whole));
    let geometry = on_device([1; 3], [1; 3], 0).unwrap();
    let check = |form, region: Option<&Arc<Region>>| {
        let kernel = Attributes {
            confinement: Some(Confinement::made_up(form, None)),
            ..attributes(signature(&[]))
        };
        let arguments = Arguments::new(&[], &kernel, IntegerPointers::Refuse).unwrap();
        let control = LaunchControl::default();
        Launch::prepare(&mut Arc::default(), geometry, arguments, region, control)
    };
    assert_eq!(check(WindowForm::Masked, Some(&small)), Ok(()));
    assert_eq!(check(WindowForm::Masked, Some(&whole)), Ok(()));
    assert_eq!(check(WindowForm::Whole, Some(&whole)), Ok(()));
    for (form, region, says) in [
        (WindowForm::Whole, Some(&small), "a window of 4 GiB"),
        (WindowForm::Whole, None, "a whole window of this device"),
        (WindowForm::Masked, None, "a whole window of this device"),
    ] {
        let refused = check(form, region).unwrap_err();
        assert!(matches!(refused, Error::NotAvailable { .. }), "{refused:?}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[test]
fn a_confined_kernel_is_told_what_its_shared_memory_became() {
    let kernel = Attributes {
        confinement: Some(Confinement::made_up(WindowForm::Masked, Some((64, 0)))),
        ..attributes(store_signature())
    };
    let check = |bytes| {
        let geometry = Geometry::new([1; 3], [1; 3], bytes, Mode::Plain, &LIMITS, Some(&kernel));
        geometry.map(|geometry| geometry.shared_bytes())
    };
    assert_eq!(check(100), Ok(128 + 63));
    let want = Error::SharedBytesConfined {
        given: 200_000,
        dynamic: (1 << 18) + 63,
        fixed: 0,
        limit: LIMITS.shared_bytes,
    };
    assert_eq!(check(200_000), Err(want));
}
