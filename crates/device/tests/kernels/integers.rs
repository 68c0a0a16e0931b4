//! Integer instructions that Rust has no operator for: bit fields and bytes, carries, 128-bit remainders, dot
//! products of bytes; from four files of the corpus and one written for the tests.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, as_it_is, assert_same, corpus, every, kernels};

pub(crate) const CASES: &[Case] = &[
    every("bitops::bitops", bitops),
    every("carries::carries", carries),
    as_it_is("inline_asm::inline_asm", inline_asm),
    every("quantize_i8::quantize_i8", quantize_i8),
    every("quantize_i8::dot_i8", dot_i8),
    every("wide_int::modpow", modpow),
];

/// Words of random bits among which are those that instructions treat in a special way.
fn words(seed: u64, count: usize) -> Vec<u32> {
    let special = [
        0,
        1,
        2,
        31,
        32,
        0x7FFF_FFFF,
        0x8000_0000,
        0x8000_0001,
        0xFFFF_FFFF,
        0x00FF_00FF,
    ];
    let mut words = Random::new(seed).words(count);
    for (word, special) in words.iter_mut().step_by(3).zip(special) {
        *word = special;
    }
    words
}

fn per_byte(a: u32, b: u32, operate: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes(std::array::from_fn(|i| operate(a[i], b[i])))
}

fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn bits_of_word(x: u32, y: u64) -> u32 {
    let low = low_word(y);
    let [x0, x1, ..] = x.to_le_bytes();
    let [y0, y1, ..] = low.to_le_bytes();
    let funnel = low_word(((u64::from(low) << 32 | u64::from(x)) << 7) >> 32);
    let saturated = per_byte(x, 0x0102_0304, |a, b| {
        a.cast_signed()
            .saturating_add(b.cast_signed())
            .cast_unsigned()
    });
    let distances = per_byte(x, low, u8::abs_diff);
    let signed = x.cast_signed().abs_diff(low.cast_signed()).wrapping_add(3);
    let unsigned = x.abs_diff(9).wrapping_add(1);
    let low_24 = (x << 8).cast_signed() >> 8;
    x.reverse_bits()
        ^ x.count_ones()
        ^ (x.leading_zeros() << 8)
        ^ u32::from_le_bytes([x0, y0, x1, y1])
        ^ funnel
        ^ ((x >> 5) & 0x3f)
        ^ saturated
        ^ distances
        ^ signed
        ^ unsigned
        ^ low_24.wrapping_mul(77).cast_unsigned()
}

fn bits_of_long(x: u32, y: u64) -> u64 {
    let high = u128::from(y) * 0x9E37_79B9_7F4A_7C15;
    let [_, _, _, _, _, _, _, _, high @ ..] = high.to_le_bytes();
    let product = i64::from(x.cast_signed()) * i64::from(low_word(y).cast_signed());
    [
        u64::from(y.count_ones()),
        u64::from(y.leading_zeros()),
        u64::from_le_bytes(high),
        y / u64::from(x | 1),
        y % 1_000_003,
        y << (x & 63),
        product.cast_unsigned(),
    ]
    .into_iter()
    .fold(y.reverse_bits(), u64::wrapping_add)
}

fn bitops(rig: &Rig) {
    let program = rig.load(&corpus("cuda/bitops.sm_75"), "bitops");
    let n = 300;
    let a = words(29, n);
    let halves = words(30, n * 2);
    let b: Vec<u64> = halves
        .chunks(2)
        .map(|half| u64::from(half[0]) << 32 | u64::from(half[1]))
        .collect();
    let mut memory = rig.memory();
    let inputs = (memory.place(&a), memory.place(&b));
    let outputs = (memory.room::<u32>(n), memory.room::<u64>(n));
    let values = [
        inputs.0.pointer(),
        inputs.1.pointer(),
        outputs.0.pointer(),
        outputs.1.pointer(),
        Value::I32(int(n)),
    ];
    rig.launch(&program, Shape::line(7, 48), &values, &memory);
    let pairs = || a.iter().zip(&b);
    let want: Vec<u32> = pairs().map(|(&x, &y)| bits_of_word(x, y)).collect();
    assert_same(&memory.read(outputs.0), &want, "words");
    let want: Vec<u64> = pairs().map(|(&x, &y)| bits_of_long(x, y)).collect();
    assert_same(&memory.read(outputs.1), &want, "longs");
}

/// What `carries` writes for three words.
fn carried([a, b, c]: [u32; 3]) -> [u32; 18] {
    let product = u64::from(a) * u64::from(b);
    let (low, high) = (low_word(product), low_word(product >> 32));
    // The sum of some words and its carry.
    let sum = |words: &[u32]| {
        let sum = words.iter().copied().map(u64::from).sum::<u64>();
        [low_word(sum), low_word(sum >> 32)]
    };
    // What is left of a word after another and a borrow, and the borrow as a mask.
    let difference = |a: u32, b: u32, borrow: bool| {
        let left = i64::from(a) - i64::from(b) - i64::from(borrow);
        let [word, mask] = [left, left >> 63].map(|bits| low_word(bits.cast_unsigned()));
        [word, mask]
    };
    let [_, carry] = sum(&[c, c]);
    let [_, low_carry] = sum(&[low, c]);
    [
        sum(&[a, b]),
        difference(a, b, false),
        [low.wrapping_add(c), high.wrapping_add(low_carry)],
        sum(&[high, c]),
        sum(&[a, b, carry]),
        difference(b, a, a < c),
        sum(&[low, c, carry]),
        sum(&[high, c, carry]),
    ]
    .as_flattened()
    .iter()
    .copied()
    .chain([
        low.wrapping_add(c).wrapping_add(carry),
        // Compilers count on a subtraction leaving a carry where it borrows nothing.
        u32::from(a >= b),
    ])
    .collect::<Vec<u32>>()
    .try_into()
    .expect("eighteen words")
}

fn carries(rig: &Rig) {
    let program = rig.load(&kernels("carries"), "carries");
    let threads = 1000;
    let inputs = words(41, threads * 3);
    let (groups, _) = inputs.as_chunks::<3>();
    let want: Vec<u32> = groups.iter().flat_map(|&words| carried(words)).collect();
    let mut memory = rig.memory();
    let input = memory.place(&inputs);
    let output = memory.room::<u32>(want.len());
    let values = [input.pointer(), output.pointer()];
    rig.launch(&program, Shape::line(1, count(threads)), &values, &memory);
    for (index, found) in memory.read(output).chunks(18).enumerate() {
        assert_same(found, &carried(groups[index]), groups[index]);
    }
}

/// 128 bits as words, lowest first.
fn quad(words: &[u32]) -> u128 {
    words
        .iter()
        .rev()
        .fold(0, |sum, &word| sum << 32 | u128::from(word))
}

fn inline_asm(rig: &Rig) {
    let program = rig.load(&corpus("cuda/inline_asm.sm_80"), "inline_asm");
    let threads = 64;
    let n = 3 * threads * 4;
    let mut a = words(31, n);
    let b = words(32, n);
    a[4..8].fill(u32::MAX);
    // Sums whose highest word is at most 100 take another way.
    for lane in (0..n).step_by(20) {
        a[lane + 3] = 0_u32.wrapping_sub(b[lane + 3]).wrapping_add(7);
    }
    let want: Vec<u32> = a
        .chunks(4)
        .zip(b.chunks(4))
        .enumerate()
        .flat_map(|(thread, (a, b))| {
            let sum = quad(a).wrapping_add(quad(b));
            let [r0, r1, r2, r3] = [0, 32, 64, 96].map(|shift| {
                let [a, b, c, d, ..] = (sum >> shift).to_le_bytes();
                u32::from_le_bytes([a, b, c, d])
            });
            let mixed = r0 ^ r1 ^ r2;
            let x = if r3 > 100 {
                mixed
            } else {
                mixed.wrapping_mul(3).wrapping_add(1)
            };
            [r0 ^ x, r1, r2.wrapping_add(count(thread % 32)), r3]
        })
        .collect();
    let mut memory = rig.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<u32>(n);
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        Value::I32(int(n)),
    ];
    rig.launch(&program, Shape::line(3, count(threads)), &values, &memory);
    assert_same(&memory.read(output), &want, "sums");
}

/// To the nearest integer, halves to even, within -127..=127.
fn quantized(x: f32) -> u8 {
    let nearest = x.round_ties_even().clamp(-127.0, 127.0);
    let steps = (-127..=127_i8).find(|&step| f32::from(step) == nearest);
    steps.expect("an integer in range").cast_unsigned()
}

fn quantize_i8(rig: &Rig) {
    let program = rig.load(&corpus("cuda/quantize_i8.sm_80"), "quantize_i8");
    let mut random = Random::new(33);
    for (n, scale) in [(1, 1.0), (100, 1.0), (777, 12.7)] {
        let mut x = random.floats(n, -15.0, 15.0);
        let special = [
            0.5,
            1.5,
            -2.5,
            1e9,
            -1e9,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
        ];
        for (x, special) in x.iter_mut().zip(special) {
            *x = special;
        }
        let want: Vec<u8> = x.iter().map(|x| quantized(x * scale)).collect();
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<u8>(n);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::F32(scale),
            Value::I32(int(n)),
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(96), 96),
            &values,
            &memory,
        );
        assert_same(&memory.read(output), &want, (n, scale));
    }
}

fn dot_i8(rig: &Rig) {
    let program = rig.load(&corpus("cuda/quantize_i8.sm_80"), "dot_i8");
    let mut random = Random::new(34);
    for (rows, columns, threads) in [(1, 1, 32), (3, 50, 32), (4, 333, 128)] {
        let (a, b) = (random.words(rows * columns), random.words(columns));
        let before = random.integers(rows);
        let dot = |a: &u32, b: &u32| -> i32 {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            let products = a.iter().zip(b);
            products
                .map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed()))
                .sum()
        };
        let want: Vec<i32> = a
            .chunks(columns)
            .zip(&before)
            .map(|(row, &before)| {
                let dots = row.iter().zip(&b).map(|(a, b)| dot(a, b));
                dots.fold(before, i32::wrapping_add)
            })
            .collect();
        let mut memory = rig.memory();
        let inputs = [memory.place(&a), memory.place(&b)];
        let output = memory.place(&before);
        let values = [
            inputs[0].pointer(),
            inputs[1].pointer(),
            output.pointer(),
            Value::I32(int(columns)),
        ];
        rig.launch(
            &program,
            Shape::line(count(rows), threads),
            &values,
            &memory,
        );
        assert_same(&memory.read(output), &want, (rows, columns, threads));
    }
}

fn power(base: u64, exponent: u64, modulus: u64) -> u64 {
    let modulus = u128::from(modulus);
    let mut result = 1;
    let mut square = u128::from(base) % modulus;
    for bit in 0..64 {
        if exponent >> bit & 1 == 1 {
            result = result * square % modulus;
        }
        square = square * square % modulus;
    }
    u64::try_from(result).expect("below the modulus")
}

fn modpow(rig: &Rig) {
    let program = rig.load(&corpus("cuda/wide_int.sm_75"), "modpow");
    let mut random = Random::new(35);
    let n = 40;
    for modulus in [2, 97, 1_000_000_007, (1 << 32) + 15, 0xFFFF_FFFF_FFFF_FFC5] {
        let mut bases: Vec<u64> = (0..n).map(|_| random.bits()).collect();
        let mut exponents: Vec<u64> = (0..n)
            .map(|_| random.bits() >> (random.word() % 64))
            .collect();
        (bases[0], exponents[0]) = (0, 0);
        (bases[1], exponents[1]) = (u64::MAX, u64::MAX);
        let pairs = bases.iter().zip(&exponents);
        let want: Vec<u64> = pairs.map(|(&b, &e)| power(b, e, modulus)).collect();
        let mut memory = rig.memory();
        let inputs = [memory.place(&bases), memory.place(&exponents)];
        let output = memory.room::<u64>(n);
        let values = [
            inputs[0].pointer(),
            inputs[1].pointer(),
            Value::U64(modulus),
            output.pointer(),
            Value::I32(int(n)),
        ];
        rig.launch(&program, Shape::line(2, 32), &values, &memory);
        assert_same(&memory.read(output), &want, modulus);
    }
}
