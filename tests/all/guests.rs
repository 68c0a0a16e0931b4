//! The example guests, whole programs from every toolchain: what they print and write, on any device. Each claim takes the
//! setup that it is to hold on; the tests here are on the CPU device.

use std::fs;

use crate::harness::{Capability, Folder, Program, Setup, run_program};

macro_rules! guest {
    ($name:literal) => {
        include_bytes!(concat!("../../fixtures/guests/", $name, ".wasm"))
    };
}

const IMAGE_FILTER: &[u8] = guest!("image_filter");
const MANDELBROT: &[u8] = guest!("mandelbrot");
const MATMUL: &[u8] = guest!("matmul");
const NBODY: &[u8] = guest!("nbody");
const SAXPY: &[u8] = include_bytes!("../../fixtures/components/saxpy.wasm");
const SHA256: &[u8] = guest!("sha256");
const SOFTMAX: &[u8] = guest!("softmax");
const VECTOR_ADD: &[u8] = include_bytes!("../../fixtures/guests/vector_add.wat");

/// Each module with arguments that it can work with.
const PROGRAMS: &[(&str, &[u8], &[&str])] = &[
    ("image_filter", IMAGE_FILTER, &["in.ppm", "out.pgm"]),
    ("mandelbrot", MANDELBROT, &[]),
    ("matmul", MATMUL, &["8"]),
    ("nbody", NBODY, &["8", "1"]),
    ("sha256", SHA256, &["in.ppm"]),
    ("softmax", SOFTMAX, &[]),
    ("vector_add", VECTOR_ADD, &[]),
];

/// A picture of its own colours in every pixel, whose sides are no multiple of a block's.
struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    fn new() -> Self {
        let (width, height) = (75_usize, 41_usize);
        let mut rgb = Vec::new();
        for y in 0..height {
            for x in 0..width {
                // A disc on a slope, and a grain that a blur must take away.
                let inside = (x.abs_diff(30)).pow(2) + (y.abs_diff(18)).pow(2) < 150;
                let base = if inside { 200 } else { 2 * x };
                let grain = (x * 7 + y * 13) % 5;
                rgb.extend([base + grain, y * 5, 255 - base].map(|c| u8::try_from(c).unwrap()));
            }
        }
        Self { width, height, rgb }
    }

    fn ppm(&self) -> Vec<u8> {
        let comment = "# a comment";
        let header = format!("P6 {comment}\n{} {}\n255\n", self.width, self.height);
        [header.as_bytes(), &self.rgb].concat()
    }

    /// A weighted sum around each pixel; pixels outside repeat the edge.
    fn around<const N: usize>(&self, of: &[f32], weights: &[[f32; N]; N]) -> Vec<f32> {
        let reach = N / 2;
        let place =
            |at: usize, by: usize, size: usize| (at + by).saturating_sub(reach).min(size - 1);
        let mut out = Vec::new();
        for y in 0..self.height {
            for x in 0..self.width {
                let mut sum = 0.0;
                for (dy, row) in weights.iter().enumerate() {
                    for (dx, weight) in row.iter().enumerate() {
                        let (v, u) = (place(y, dy, self.height), place(x, dx, self.width));
                        sum += weight * of[v * self.width + u];
                    }
                }
                out.push(sum);
            }
        }
        out
    }

    /// What the guest must find, as numbers before they are made bytes.
    fn edges(&self) -> Vec<f32> {
        let luma =
            |c: &[u8]| 0.299 * f32::from(c[0]) + 0.587 * f32::from(c[1]) + 0.114 * f32::from(c[2]);
        let grey: Vec<f32> = self.rgb.chunks(3).map(luma).collect();
        let binomial = [1.0, 4.0, 6.0, 4.0, 1.0_f32];
        let gauss = binomial.map(|v| binomial.map(|h| v * h / 256.0));
        let blurred = self.around(&grey, &gauss);
        let across = [[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]];
        let down = [[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]];
        let slopes = self.around(&blurred, &across).into_iter();
        slopes
            .zip(self.around(&blurred, &down))
            .map(|(x, y)| x.hypot(y).min(255.0))
            .collect()
    }
}

pub(crate) fn image_filter_finds_the_edges(setup: &Setup) {
    let (folder, picture) = (Folder::new(), Picture::new());
    folder.write("in.ppm", &picture.ppm());
    let program = Program {
        folder: Some(folder.path()),
        ..Program::new(IMAGE_FILTER, &["in.ppm", "out.pgm"])
    };
    let printed = run_program(setup, &program).well();
    assert_eq!(printed, "out.pgm: the edges of 75 x 41 pixels\n");

    let written = fs::read(folder.path().join("out.pgm")).unwrap();
    let pixels = written.strip_prefix(b"P5\n75 41\n255\n").unwrap();
    let edges = picture.edges();
    assert_eq!(pixels.len(), edges.len());
    for (at, (pixel, edge)) in pixels.iter().zip(&edges).enumerate() {
        // The kernel rounds sums in another order, and then to the byte below.
        let apart = edge - f32::from(*pixel);
        assert!((-0.01..1.01).contains(&apart), "{at}: {pixel}, not {edge}");
    }
    assert!(edges.iter().any(|edge| *edge > 50.0), "there is an edge");
}

pub(crate) fn mandelbrot_draws_its_picture(setup: &Setup) {
    let printed = run_program(setup, &Program::new(MANDELBROT, &[])).well();
    let expected = include_str!("../../fixtures/guests/mandelbrot/mandelbrot.txt");
    assert_eq!(printed, expected);
}

/// The first line of a program that says what runs its kernels.
fn device_line(setup: &Setup) -> String {
    format!("device: {}", setup.device().unwrap().info().name)
}

pub(crate) fn matmul_is_right(setup: &Setup) {
    // A whole tile, and a size that fills none.
    for (size, allowed) in [("64", "4.9e-4"), ("33", "1.3e-4")] {
        let printed = run_program(setup, &Program::new(MATMUL, &[size])).well();
        let lines: Vec<&str> = printed.lines().collect();
        let [device, speed, verdict] = lines[..] else {
            panic!("{printed}")
        };
        assert_eq!(device, device_line(setup));
        let measured = speed.strip_prefix(&format!("{size} x {size} matrices: "));
        assert!(measured.unwrap().ends_with(" GFLOP/s"), "{speed}");
        assert_eq!(
            verdict,
            format!("ok: the product is right within {allowed}")
        );
    }
}

pub(crate) fn nbody_keeps_energy(setup: &Setup) {
    let ended = run_program(setup, &Program::new(NBODY, &["300", "10"]));
    let progress: Vec<String> = ended.stderr.split('\r').map(str::to_owned).collect();
    let printed = ended.well();
    let lines: Vec<&str> = printed.lines().collect();
    let [device, speed, energy, verdict] = lines[..] else {
        panic!("{printed}")
    };
    assert_eq!(device, device_line(setup));
    assert!(speed.starts_with("300 bodies, 10 steps: "), "{speed}");
    // 300 bodies of mass 1/300 at rest, spread evenly over a ball of radius 1: about -3/5.
    assert!(energy.starts_with("energy: -0.5"), "{energy}");
    let kept = "ok: energy is kept within 1 %, momentum within 0.0001";
    assert_eq!(verdict, kept);
    assert_eq!(progress.len(), 11, "{progress:?}");
    let last = format!("[{}] step 10 of 10\n", "#".repeat(30));
    assert_eq!(progress.last(), Some(&last));
}

pub(crate) fn saxpy_is_right_by_value_and_in_buffers(setup: &Setup) {
    // Whole blocks, one that is not full, and a single float. `y` is 1 at first and grows by twice (i mod 1024) a launch.
    for (count, launches, last) in [
        ("1024", "3", "y[1023] = 6139"),
        ("4000", "2", "y[3999] = 3709"),
        ("1", "5", "y[0] = 1"),
    ] {
        let printed = run_program(setup, &Program::new(SAXPY, &[count, launches])).well();
        let lines: Vec<&str> = printed.lines().collect();
        let [device, by_value, in_buffers, verdict] = lines[..] else {
            panic!("{printed}")
        };
        assert_eq!(device, device_line(setup));
        for (line, how) in [(by_value, "by value: "), (in_buffers, "in buffers: ")] {
            assert!(line.starts_with(how), "{line}");
            assert!(line.ends_with("s a launch"), "{line}");
        }
        let sums = format!("ok: {count} floats, {launches} launches, {last}");
        assert_eq!(verdict, sums);
    }
}

pub(crate) fn sha256_is_bit_exact(setup: &Setup) {
    // `abc` and `bits_448` are examples of FIPS 180-4, the others what `sha256sum` prints; 55 and 56 bytes lie where padding
    // begins another block.
    let messages: [(&str, &[u8], &str); 6] = [
        (
            "abc",
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            "bytes_55",
            &[b'a'; 55],
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318",
        ),
        (
            "bytes_56",
            &[b'a'; 56],
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a",
        ),
        (
            "bits_448",
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            "empty",
            b"",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            "many",
            &[b'a'; 10_000],
            "27dd1f61b867b6a0f6e9d8a41c43231de52107e53ae424de8f847b821db4b711",
        ),
    ];
    let folder = Folder::new();
    for (name, bytes, _) in messages {
        folder.write(name, bytes);
    }
    let names = messages.map(|(name, ..)| name);
    let program = Program {
        folder: Some(folder.path()),
        ..Program::new(SHA256, &names)
    };
    let printed = run_program(setup, &program).well();
    let expected = messages.map(|(name, _, digest)| format!("{digest}  {name}\n"));
    assert_eq!(printed, expected.concat());
}

pub(crate) fn softmax_makes_shares(setup: &Setup) {
    let program = Program {
        stdin: "1 2 3 -4.5\n1000 1000 0 0\n0 0 0 0\n",
        ..Program::new(SOFTMAX, &[])
    };
    let printed = run_program(setup, &program).well();
    let expected =
        "0.0900 0.2446 0.6650 0.0004\n0.5000 0.5000 0.0000 0.0000\n0.2500 0.2500 0.2500 0.2500\n";
    assert_eq!(printed, expected);
}

pub(crate) fn vector_add_prints_its_sums(setup: &Setup) {
    let printed = run_program(setup, &Program::new(VECTOR_ADD, &[])).well();
    let sums = "vector_add on 64 elements: c[0]=100 c[1]=102 ... c[63]=226\nok\n";
    assert_eq!(printed, format!("{}\n{sums}", device_line(setup)));
}

macro_rules! on_cpu {
    ($($claim:ident),*) => {
        mod on_cpu {
            $(
                #[test]
                fn $claim() {
                    super::$claim(&super::Setup::default());
                }
            )*
        }
    };
}

on_cpu!(
    image_filter_finds_the_edges,
    mandelbrot_draws_its_picture,
    matmul_is_right,
    nbody_keeps_energy,
    saxpy_is_right_by_value_and_in_buffers,
    sha256_is_bit_exact,
    softmax_makes_shares,
    vector_add_prints_its_sums
);

#[test]
fn without_a_device_every_guest_says_so() {
    let folder = Folder::new();
    folder.write("in.ppm", &Picture::new().ppm());
    for (name, code, args) in PROGRAMS {
        let program = Program {
            folder: Some(folder.path()),
            stdin: "1 2\n",
            ..Program::new(code, args)
        };
        let ended = run_program(&Setup::no_device(), &program);
        assert_eq!(ended.code, 1, "{name}: {ended:?}");
        let line = ended.stderr.trim_end();
        assert!(line.starts_with(name) && !line.contains('\n'), "{line}");
        assert!(line.contains("-1") && line.contains("no device"), "{line}");
    }
}

/// A component prints the name of a code, as its interface has no numbers.
#[test]
fn without_a_device_or_the_right_to_one_a_component_says_so() {
    let off = Setup {
        capability: Capability::Off,
        ..Setup::default()
    };
    for (setup, said) in [
        (
            Setup::no_device(),
            "saxpy: ErrorCode::NotAvailable: no device: this instance was given none\n",
        ),
        (off, "saxpy: this component may not use CUDA\n"),
    ] {
        let ended = run_program(&setup, &Program::new(SAXPY, &[]));
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
        assert_eq!(ended.stderr, said);
    }
}

#[test]
fn mistakes_of_their_users_are_told_in_one_line() {
    let folder = Folder::new();
    folder.write("text.ppm", b"P3 1 1 255 0 0 0");
    folder.write("cut.ppm", b"P6 8 8 255 short");
    let mistakes: [(&[u8], &[&str], i32, &str); 9] = [
        (IMAGE_FILTER, &[], 2, "usage: image_filter IN.ppm OUT.pgm"),
        (
            IMAGE_FILTER,
            &["none.ppm", "out.pgm"],
            1,
            "image_filter: none.ppm: No such file or directory",
        ),
        (
            IMAGE_FILTER,
            &["text.ppm", "out.pgm"],
            1,
            "image_filter: text.ppm: is no binary PPM (P6)",
        ),
        (
            IMAGE_FILTER,
            &["cut.ppm", "out.pgm"],
            1,
            "image_filter: cut.ppm: ends too early",
        ),
        (MATMUL, &["0"], 2, "usage: matmul [N], from 1 to 8192"),
        (
            NBODY,
            &["many"],
            2,
            "usage: nbody [BODIES] [STEPS], from 1 to 1048576 and to 100000",
        ),
        (
            SAXPY,
            &["8", "many"],
            1,
            "usage: saxpy [FLOATS] [LAUNCHES], from 1 to 4194304 and to 1000",
        ),
        (SHA256, &[], 2, "usage: sha256 FILE..."),
        (SOFTMAX, &[], 1, "softmax: no numbers on standard input"),
    ];
    for (code, args, exit, text) in mistakes {
        let program = Program {
            folder: Some(folder.path()),
            ..Program::new(code, args)
        };
        let ended = run_program(&Setup::default(), &program);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (exit, format!("{text}\n").as_str())
        );
    }
}
