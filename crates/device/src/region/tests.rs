use super::*;

const PAGE: u64 = 64 * 1024;
/// The same, as lengths are counted.
const BYTES: usize = 64 * 1024;
const WINDOW: u64 = 16 * PAGE;
const BUDGET: u64 = 1 << 40;

fn spec() -> RegionSpec {
    RegionSpec {
        window_bytes: WINDOW,
        initial_bytes: PAGE,
        maximum_bytes: WINDOW,
        reserved_bytes: 0,
        guard_bytes: PAGE,
    }
}

fn region_of(spec: RegionSpec) -> Arc<Region> {
    Region::anonymous(&RegionTable::new(BUDGET), spec).unwrap()
}

fn region() -> Arc<Region> {
    region_of(spec())
}

fn bytes_at(region: &Region, at: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(count).unwrap()];
    region.window().load_run(at, &mut bytes).unwrap();
    bytes
}

fn refusal(region: &Arc<Region>, bytes: u64) -> (u64, u64) {
    match region.carve(bytes) {
        Err(Error::OutOfMemory {
            requested,
            available,
            ..
        }) => (requested, available),
        other => panic!("{other:?}"),
    }
}

#[test]
fn growth_gives_zero_bytes_and_keeps_base_and_contents() {
    let region = region();
    let base = region.base();
    region.window().store(PAGE - 8, 0x1122_u64).unwrap();
    region.grow(5 * PAGE).unwrap();
    assert_eq!(region.base(), base);
    assert_eq!(region.size(), 5 * PAGE);
    assert_eq!(region.window().load::<u64>(PAGE - 8), Ok(0x1122));
    assert!(
        bytes_at(&region, PAGE, 4 * PAGE)
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn the_window_ends_with_linear_memory() {
    let region = region();
    assert!(region.window().covers(0, PAGE));
    assert!(!region.window().covers(0, PAGE + 1));
    let before = region.window();
    region.grow(2 * PAGE).unwrap();
    assert!(
        !before.covers(PAGE, 1),
        "a window does not follow later growth"
    );
    assert!(region.window().covers(0, 2 * PAGE));
}

#[test]
fn growing_to_less_changes_nothing() {
    let region = region();
    region.grow(0).unwrap();
    assert_eq!(region.size(), PAGE);
    assert!(region.window().covers(0, PAGE));
}

#[test]
fn growth_past_the_maximum_is_refused() {
    let region = region_of(RegionSpec {
        maximum_bytes: 3 * PAGE,
        ..spec()
    });
    region.grow(3 * PAGE).unwrap();
    let refused = region.grow(4 * PAGE);
    let want = Error::OutOfMemory {
        what: "linear memory",
        requested: 4 * PAGE,
        available: 3 * PAGE,
    };
    assert_eq!(refused, Err(want));
    assert_eq!(region.size(), 3 * PAGE);
}

#[test]
fn growth_past_the_window_is_refused_whatever_the_maximum() {
    let region = region_of(RegionSpec {
        maximum_bytes: u64::MAX,
        ..spec()
    });
    region.grow(WINDOW).unwrap();
    let refused = region.grow(WINDOW + PAGE);
    let want = Error::OutOfMemory {
        what: "linear memory",
        requested: WINDOW + PAGE,
        available: WINDOW,
    };
    assert_eq!(refused, Err(want));
}

#[test]
fn growth_into_a_buffer_is_refused_until_it_is_freed() {
    let region = region();
    let buffer = region.carve(2 * PAGE).unwrap();
    region.grow(14 * PAGE).unwrap();
    let want = Error::OutOfMemory {
        what: "linear memory",
        requested: 15 * PAGE,
        available: 14 * PAGE,
    };
    assert_eq!(region.grow(15 * PAGE), Err(want));
    drop(buffer);
    region.grow(WINDOW).unwrap();
    assert!(region.window().covers(0, WINDOW));
}

#[test]
fn a_buffer_where_linear_memory_lies_is_refused() {
    let region = region();
    region.grow(14 * PAGE).unwrap();
    assert_eq!(refusal(&region, 3 * PAGE), (3 * PAGE, 2 * PAGE));
    assert_eq!(refusal(&region, u64::MAX), (u64::MAX, 2 * PAGE));
    let whole = region.carve(2 * PAGE).unwrap();
    assert_eq!(whole.start(), 14 * PAGE);
    assert_eq!(refusal(&region, 1), (1, 0));
}

#[test]
fn buffers_take_the_highest_gap_that_is_large_enough() {
    let region = region();
    let [first, second, third] = [2, 3, 2].map(|pages| region.carve(pages * PAGE).unwrap());
    assert_eq!(
        [first.start(), second.start(), third.start()],
        [14, 11, 9].map(|page| page * PAGE)
    );
    drop(second);
    let too_large = region.carve(4 * PAGE).unwrap();
    assert_eq!(too_large.start(), 5 * PAGE);
    let fits = region.carve(2 * PAGE).unwrap();
    assert_eq!(fits.start(), 12 * PAGE);
    drop(first);
    let top = region.carve(1).unwrap();
    assert_eq!(top.start(), WINDOW - page_bytes() as u64);
    assert_eq!(top.bytes(), 1);
}

#[test]
fn a_buffer_is_zero_when_its_bytes_were_used_before() {
    let region = region();
    let first = region.carve(2 * PAGE).unwrap();
    let start = first.start();
    first.write(0, &vec![0xAB; 2 * BYTES]).unwrap();
    assert_eq!(region.window().load::<u8>(start), Ok(0xAB));
    drop(first);
    let second = region.carve(2 * PAGE).unwrap();
    assert_eq!(second.start(), start);
    let mut bytes = vec![1; 2 * BYTES];
    second.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn linear_memory_that_grows_over_a_freed_buffer_is_zero() {
    let region = region();
    let buffer = region.carve(PAGE).unwrap();
    buffer.write(0, &[0xCD; 64]).unwrap();
    let start = buffer.start();
    drop(buffer);
    region.grow(WINDOW).unwrap();
    assert!(bytes_at(&region, start, PAGE).iter().all(|&byte| byte == 0));
}

#[test]
fn kernels_can_touch_a_buffer_only_as_long_as_it_is_there() {
    let region = region();
    let buffer = region.carve(PAGE).unwrap();
    let start = buffer.start();
    assert!(region.window().covers(start, PAGE));
    assert!(!region.window().covers(start - 1, 2));
    assert!(!region.window().covers(start, PAGE + 1));
    drop(buffer);
    assert!(!region.window().covers(start, 1));
}

#[test]
fn copies_stay_inside_their_buffer() {
    let region = region();
    let above = region.carve(PAGE).unwrap();
    let buffer = region.carve(100).unwrap();
    buffer.write(90, &[7; 10]).unwrap();
    let mut read = [0; 10];
    buffer.read(90, &mut read).unwrap();
    assert_eq!(read, [7; 10]);
    for (at, bytes, available) in [
        (91, 10, 9),
        (100, 1, 0),
        (u64::MAX, 1, 0),
        (u64::MAX - 3, 8, 0),
    ] {
        let want = Error::OutOfMemory {
            what: "a copy to or from a device buffer",
            requested: bytes,
            available,
        };
        let mut scratch = vec![9; usize::try_from(bytes).unwrap()];
        assert_eq!(buffer.write(at, &scratch), Err(want.clone()));
        assert_eq!(buffer.read(at, &mut scratch), Err(want));
        assert!(
            scratch.iter().all(|&byte| byte == 9),
            "nothing was read at {at}"
        );
    }
    let mut neighbour = vec![1; BYTES];
    above.read(0, &mut neighbour).unwrap();
    assert!(neighbour.iter().all(|&byte| byte == 0));
    buffer.write(100, &[]).unwrap();
}

#[test]
fn the_table_finds_a_region_by_its_base_as_long_as_it_lives() {
    let table = RegionTable::new(BUDGET);
    let region = Region::anonymous(&table, spec()).unwrap();
    let other = Region::anonymous(&table, spec()).unwrap();
    let base = region.base();
    assert!(Arc::ptr_eq(&table.find(base).unwrap(), &region));
    assert!(Arc::ptr_eq(&table.find(other.base()).unwrap(), &other));
    let inside = HostAddr::from_ptr(base.as_ptr().wrapping_add(1)).unwrap();
    assert!(table.find(inside).is_none());
    drop(region);
    assert!(table.find(base).is_none());
    assert!(table.find(other.base()).is_some());
}

#[test]
fn a_buffer_keeps_its_region() {
    let table = RegionTable::new(BUDGET);
    let region = Region::anonymous(&table, spec()).unwrap();
    let base = region.base();
    let buffer = region.carve(8).unwrap();
    drop(region);
    buffer.write(0, &[1; 8]).unwrap();
    assert!(table.find(base).is_some());
    drop(buffer);
    assert!(table.find(base).is_none());
}

#[test]
fn reservations_are_charged_to_the_budget_and_refunded() {
    let page = page_bytes() as u64;
    let each = page + WINDOW + PAGE;
    let table = RegionTable::new(2 * each + 5);
    let first = Region::anonymous(&table, spec()).unwrap();
    let _second = Region::anonymous(&table, spec()).unwrap();
    assert_eq!(table.reserved_bytes(), 2 * each);
    let want = Error::OutOfMemory {
        what: "a memory window with its guards",
        requested: each,
        available: 5,
    };
    assert_eq!(Region::anonymous(&table, spec()).unwrap_err(), want);
    assert_eq!(table.reserved_bytes(), 2 * each);
    drop(first);
    assert_eq!(table.reserved_bytes(), each);
    let _third = Region::anonymous(&table, spec()).unwrap();
    assert_eq!(table.reserved_bytes(), 2 * each);
}

#[test]
fn the_address_space_of_buffers_is_charged_when_there_is_a_first_one() {
    let window = page_bytes() as u64 + WINDOW + PAGE;
    let table = RegionTable::new(2 * window + WINDOW);
    let region = Region::anonymous(&table, spec()).unwrap();
    let buffers = [region.carve(1).unwrap(), region.carve(1).unwrap()];
    assert_eq!(table.reserved_bytes(), window + WINDOW);
    let neighbour = Region::anonymous(&table, spec()).unwrap();
    assert_eq!(refusal(&neighbour, 1), (WINDOW, 0));
    drop(buffers);
    assert_eq!(table.reserved_bytes(), 2 * window + WINDOW);
    drop(region);
    let buffer = neighbour.carve(1).unwrap();
    drop(neighbour);
    assert_eq!(table.reserved_bytes(), window + WINDOW);
    drop(buffer);
    assert_eq!(table.reserved_bytes(), 0);
}

#[test]
fn what_the_operating_system_refuses_is_not_charged() {
    let table = RegionTable::new(u64::MAX);
    let impossible = RegionSpec {
        reserved_bytes: 1 << 60,
        ..spec()
    };
    let refused = Region::anonymous(&table, impossible).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Backend {
                what: "reserving memory",
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(table.reserved_bytes(), 0);
}

#[test]
fn a_spec_that_contradicts_itself_is_refused() {
    let table = RegionTable::new(BUDGET);
    let contradictions = [
        RegionSpec {
            window_bytes: 0,
            ..spec()
        },
        RegionSpec {
            window_bytes: 3 * PAGE,
            ..spec()
        },
        RegionSpec {
            window_bytes: 2 * MAX_WINDOW_BYTES,
            ..spec()
        },
        RegionSpec {
            window_bytes: page_bytes() as u64 / 2,
            initial_bytes: 0,
            ..spec()
        },
        RegionSpec {
            initial_bytes: WINDOW + 1,
            maximum_bytes: u64::MAX,
            ..spec()
        },
        RegionSpec {
            initial_bytes: 2 * PAGE,
            maximum_bytes: PAGE,
            ..spec()
        },
    ];
    for contradiction in contradictions {
        let refused = Region::anonymous(&table, contradiction);
        assert!(
            matches!(
                refused,
                Err(Error::Backend {
                    what: "making a region",
                    ..
                })
            ),
            "{contradiction:?} gave {refused:?}"
        );
    }
    assert_eq!(table.reserved_bytes(), 0);
}

#[test]
fn the_largest_window_reaches_to_its_last_byte() {
    let region = region_of(RegionSpec {
        window_bytes: MAX_WINDOW_BYTES,
        maximum_bytes: MAX_WINDOW_BYTES,
        ..spec()
    });
    let buffer = region.carve(PAGE).unwrap();
    assert_eq!(buffer.start(), MAX_WINDOW_BYTES - PAGE);
    region
        .window()
        .store(MAX_WINDOW_BYTES - 4, 0xDEAD_BEEF_u32)
        .unwrap();
    let mut last = [0; 4];
    buffer.read(PAGE - 4, &mut last).unwrap();
    assert_eq!(u32::from_le_bytes(last), 0xDEAD_BEEF);
    assert!(!region.window().covers(MAX_WINDOW_BYTES - 1, 2));
}

#[test]
fn debug_output_holds_no_host_address() {
    let region = region();
    let buffer = region.carve(1).unwrap();
    let shown = format!(
        "{region:?} {:?} {buffer:?} {:?}",
        region.base(),
        region.window()
    );
    let largest = shown
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse::<u64>().ok())
        .max();
    assert!(
        largest.is_none_or(|number| number < MAX_WINDOW_BYTES),
        "{shown}"
    );
    assert!(!shown.contains("0x"), "{shown}");
}

#[test]
fn the_numbers_cover_what_the_window_covers() {
    let region = region();
    let _upper = region.carve(2 * PAGE).unwrap();
    let _lower = region.carve(PAGE).unwrap();
    let bounds = [0, PAGE, 13 * PAGE, 14 * PAGE, WINDOW, 2 * WINDOW, u64::MAX];
    let edges: Vec<u64> = bounds
        .iter()
        .flat_map(|&bound| [bound.wrapping_sub(1), bound, bound.wrapping_add(1)])
        .collect();
    for &at in &edges {
        for &bytes in &edges {
            let want = region.window().covers(at, bytes);
            assert_eq!(region.covers(at, bytes), want, "{bytes} from {at}");
        }
    }
}

#[test]
fn a_window_of_its_own_serves_confined_kernels() {
    assert!(region().serves_confined());
}

#[test]
fn variables_of_a_module_are_carved_with_their_addresses_filled_in() {
    let region = region();
    let mut globals = ptx::Globals::default();
    assert!(Carved::for_globals(&region, &globals).unwrap().is_none());
    globals.image = vec![7; 24];
    globals.image[8..16].copy_from_slice(&16_u64.to_le_bytes());
    globals.addresses = vec![8];
    let carved = Carved::for_globals(&region, &globals).unwrap().unwrap();
    let mut found = [0; 24];
    carved.read(0, &mut found).unwrap();
    let address = (carved.start() + 16).to_le_bytes();
    assert_eq!(found, [[7; 8], address, [7; 8]].concat()[..]);

    globals.addresses = vec![17];
    let refused = Carved::for_globals(&region, &globals).unwrap_err();
    assert!(matches!(refused, Error::Backend { .. }), "{refused}");
}
