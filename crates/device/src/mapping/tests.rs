use super::*;

const PAGES: usize = 4;

/// A window of `PAGES` low pages and a top of two pages that ends at 2^32.
struct Fixture {
    low: Mapping,
    top: Mapping,
    low_bytes: usize,
    top_range: Range<usize>,
}

impl Fixture {
    fn new(low_bytes: usize) -> Self {
        let page = page_bytes();
        let end = 1 << 32;
        let top_range = end - 2 * page..end;
        let low = Mapping::reserve((PAGES + 1) * page).unwrap();
        low.commit(page..(PAGES + 1) * page).unwrap();
        let top = Mapping::reserve(end).unwrap();
        top.commit(top_range.clone()).unwrap();
        Self {
            low,
            top,
            low_bytes,
            top_range,
        }
    }

    fn window(&self) -> Window<'_> {
        Window::new(
            &self.low,
            page_bytes(),
            self.low_bytes,
            Some(&self.top),
            self.top_range.clone(),
        )
    }

    /// What `covers` must say, in numbers that cannot overflow.
    fn covers(&self, address: u64, bytes: u64) -> bool {
        let (first, end) = (u128::from(address), u128::from(address) + u128::from(bytes));
        let inside = |range: Range<usize>| first >= range.start as u128 && end <= range.end as u128;
        inside(0..self.low_bytes) || inside(self.top_range.clone())
    }
}

/// Numbers at, just below and just above everything that bounds a window.
fn edges() -> Vec<u64> {
    let page = page_bytes() as u64;
    let end = 1_u64 << 32;
    let bounds = [
        0,
        page,
        PAGES as u64 * page,
        1 << 31,
        end - 2 * page,
        end - page,
        end,
        end + page,
        1 << 63,
        u64::MAX,
    ];
    let mut edges: Vec<u64> = bounds
        .iter()
        .flat_map(|&bound| {
            (0..=9)
                .chain([15, 16, 17])
                .flat_map(move |step| [bound.wrapping_sub(step), bound.wrapping_add(step)])
        })
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn low_sizes() -> [usize; 4] {
    let page = page_bytes();
    [0, 1, page + 5, PAGES * page]
}

#[test]
fn covers_is_exact_at_every_edge() {
    for low_bytes in low_sizes() {
        let fixture = Fixture::new(low_bytes);
        let window = fixture.window();
        let mut covered = 0;
        for &address in &edges() {
            for &bytes in &edges() {
                let want = fixture.covers(address, bytes);
                assert_eq!(
                    window.covers(address, bytes),
                    want,
                    "{low_bytes} low bytes: {bytes} from {address:#x}"
                );
                covered += u32::from(want);
            }
        }
        assert!(covered > 0);
    }
}

fn every_edge_agrees<T: Word + PartialEq + fmt::Debug>(pattern: T) {
    let width = size_of::<T>() as u64;
    for low_bytes in low_sizes() {
        let fixture = Fixture::new(low_bytes);
        let window = fixture.window();
        for &address in &edges() {
            let want = if !address.is_multiple_of(width) {
                Err(WindowFault::Misaligned)
            } else if fixture.covers(address, width) {
                Ok(())
            } else {
                Err(WindowFault::OutOfBounds)
            };
            assert_eq!(
                window.store(address, pattern),
                want,
                "store at {address:#x}"
            );
            let stored = want.map(|()| pattern);
            assert_eq!(window.load::<T>(address), stored, "load at {address:#x}");
            assert_eq!(
                window.update(address, |_| T::default()),
                stored,
                "update at {address:#x}"
            );
            let changed = want.map(|()| T::default());
            assert_eq!(window.load::<T>(address), changed, "load at {address:#x}");
        }
    }
}

#[test]
fn words_of_every_width_are_refused_exactly_where_they_do_not_fit() {
    every_edge_agrees(0x81_u8);
    every_edge_agrees(0x8182_u16);
    every_edge_agrees(0x8182_8384_u32);
    every_edge_agrees(0x8182_8384_8586_8788_u64);
}

#[test]
fn a_word_that_straddles_the_end_changes_no_byte() {
    let fixture = Fixture::new(page_bytes() + 6);
    let window = fixture.window();
    let straddling = page_bytes() as u64 + 4;
    assert_eq!(
        window.store(straddling, u32::MAX),
        Err(WindowFault::OutOfBounds)
    );
    assert_eq!(window.load::<u16>(straddling), Ok(0));
}

#[test]
fn no_bytes_may_be_touched_at_the_very_end_and_not_behind_it() {
    let fixture = Fixture::new(8);
    let window = fixture.window();
    let end = 1 << 32;
    assert!(window.covers(8, 0));
    assert!(window.covers(end, 0));
    assert!(!window.covers(9, 0));
    assert!(!window.covers(end + 1, 0));
    assert_eq!(window.load_run::<u32>(8, &mut []), Ok(()));
    assert_eq!(window.store_run::<u64>(end, &[]), Ok(()));
    assert_eq!(
        window.load_run::<u32>(12, &mut []),
        Err(WindowFault::OutOfBounds)
    );
}

#[test]
fn a_window_without_memory_covers_nothing() {
    let low = Mapping::reserve(page_bytes()).unwrap();
    let window = Window::new(&low, page_bytes(), 0, None, 1 << 32..1 << 32);
    for &address in &edges() {
        assert_eq!(window.load::<u8>(address), Err(WindowFault::OutOfBounds));
    }
}

#[test]
fn runs_are_copied_whole() {
    let fixture = Fixture::new(page_bytes());
    let window = fixture.window();
    for start in [0, 64, (1 << 32) - 16] {
        let words = [1_u32, 2, 0x8000_0003, u32::MAX];
        window.store_run(start, &words).unwrap();
        let mut back = [0; 4];
        window.load_run(start, &mut back).unwrap();
        assert_eq!(back, words);
        assert_eq!(window.load::<u32>(start + 8), Ok(0x8000_0003));
    }
}

#[test]
fn a_run_that_does_not_fit_is_not_begun() {
    let page = page_bytes() as u64;
    let fixture = Fixture::new(page_bytes());
    let window = fixture.window();
    for end in [page, 1 << 32] {
        let start = end - 12;
        let fault = window.store_run(start, &[u32::MAX; 4]);
        assert_eq!(fault, Err(WindowFault::OutOfBounds));
        let mut kept = [7_u32; 4];
        assert_eq!(
            window.load_run(start, &mut kept),
            Err(WindowFault::OutOfBounds)
        );
        assert_eq!(kept, [7; 4]);
        let mut in_bounds = [9_u32; 3];
        window.load_run(start, &mut in_bounds).unwrap();
        assert_eq!(in_bounds, [0; 3]);
        assert_eq!(
            window.store_run(start + 2, &[u32::MAX; 2]),
            Err(WindowFault::Misaligned)
        );
        assert_eq!(window.load::<u32>(start), Ok(0));
    }
}

#[test]
fn words_are_little_endian_in_memory() {
    let fixture = Fixture::new(64);
    let window = fixture.window();
    window.store(8, 0x0807_0605_0403_0201_u64).unwrap();
    let mut bytes = [0_u8; 8];
    window.load_run(8, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn updates_from_many_threads_are_all_counted() {
    let fixture = Fixture::new(64);
    let window = fixture.window();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    window.update(16, |count: u32| count + 1).unwrap();
                }
            });
        }
    });
    assert_eq!(window.load::<u32>(16), Ok(40_000));
}

#[test]
fn discarded_pages_are_zero_and_others_are_kept() {
    let page = page_bytes();
    let mapping = Mapping::reserve(2 * page).unwrap();
    mapping.commit(0..2 * page).unwrap();
    let window = Window::new(&mapping, 0, 2 * page, None, 0..0);
    window.store(0, 5_u32).unwrap();
    window.store(page as u64, 6_u32).unwrap();
    mapping.discard(page..2 * page).unwrap();
    assert_eq!(window.load::<u32>(0), Ok(5));
    assert_eq!(window.load::<u32>(page as u64), Ok(0));
}

#[test]
fn no_address_shows_its_digits() {
    let mapping = Mapping::reserve(page_bytes()).unwrap();
    assert_eq!(format!("{:?}", mapping.at(0)), "HostAddr(..)");
    assert_eq!(HostAddr::from_ptr(std::ptr::null_mut()), None);
}
