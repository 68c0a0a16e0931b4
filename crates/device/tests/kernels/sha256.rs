//! SHA-256 compression, one message block a thread; round constants in constant memory.

use std::fmt::Write;

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("sha256::known_digest", known_digest),
    every("sha256::many_blocks", many_blocks),
    every(
        "sha256::constants_without_a_value_are_zero",
        constants_without_a_value_are_zero,
    ),
];

const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
fn round_constants() -> [u32; 64] {
    let is_prime = |n: &u128| (2..*n).all(|divisor| !n.is_multiple_of(divisor));
    let mut primes = (2_u128..).filter(is_prime);
    std::array::from_fn(|_| {
        let scaled = primes.next().expect("there is always another prime") << 96;
        // The cube root of a prime up to 311 is below 7, so its first 32 fractional bits are found below 2^35.
        let mut root = 0_u64;
        for bit in (0..35).rev() {
            let tried = u128::from(root | 1 << bit);
            if tried * tried * tried <= scaled {
                root |= 1 << bit;
            }
        }
        let [a, b, c, d, ..] = root.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    })
}

fn compressed(message: &[u32], constants: &[u32; 64]) -> [u32; 8] {
    let mut w: Vec<u32> = message.iter().map(|word| word.swap_bytes()).collect();
    for i in 16..64 {
        let (x, y) = (w[i - 15], w[i - 2]);
        let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
        let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
        let sum = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]);
        w.push(sum.wrapping_add(s1));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = START;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice);
        let t1 = t1.wrapping_add(constants[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(s0.wrapping_add(majority)));
    }
    let end = [a, b, c, d, e, f, g, h];
    std::array::from_fn(|i| START[i].wrapping_add(end[i]))
}

/// The corpus' text, whose constants the host fills, with their values written in.
fn with_constants() -> String {
    let mut list = String::new();
    for byte in round_constants().iter().flat_map(|word| word.to_le_bytes()) {
        write!(list, "{byte}, ").expect("writing to a string");
    }
    let declaration = "K[256]";
    let text = corpus("cuda/sha256.sm_75");
    assert!(text.contains(declaration));
    let initial = format!("{declaration} = {{{}}}", list.trim_end_matches(", "));
    text.replacen(declaration, &initial, 1)
}

fn digests(rig: &Rig, text: &str, messages: &[u32], threads: u32) -> Vec<u32> {
    let program = rig.load(text, "sha256_block");
    let n = messages.len() / 16;
    let mut memory = rig.memory();
    let input = memory.place(messages);
    let output = memory.room::<u32>(n * 8);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(count(n).div_ceil(threads), threads);
    rig.launch(&program, shape, &values, &memory);
    memory.read(output)
}

/// The example of FIPS 180-4: the message "abc", padded to one block.
fn known_digest(rig: &Rig) {
    let mut block = [0_u32; 16];
    block[0] = u32::from_le_bytes(*b"abc\x80");
    block[15] = 24_u32.swap_bytes();
    let want = [
        0xba78_16bf,
        0x8f01_cfea,
        0x4141_40de,
        0x5dae_2223,
        0xb003_61a3,
        0x9617_7a9c,
        0xb410_ff61,
        0xf200_15ad,
    ];
    assert_same(&digests(rig, &with_constants(), &block, 32), &want, "abc");
}

fn many_blocks(rig: &Rig) {
    let mut random = Random::new(18);
    let text = with_constants();
    for (n, threads) in [(1, 1), (31, 32), (70, 32), (100, 48)] {
        let messages = random.words(n * 16);
        let want: Vec<u32> = messages
            .chunks(16)
            .flat_map(|block| compressed(block, &round_constants()))
            .collect();
        assert_same(
            &digests(rig, &text, &messages, threads),
            &want,
            (n, threads),
        );
    }
}

fn constants_without_a_value_are_zero(rig: &Rig) {
    let messages = Random::new(19).words(16 * 5);
    let want: Vec<u32> = messages
        .chunks(16)
        .flat_map(|block| compressed(block, &[0; 64]))
        .collect();
    let found = digests(rig, &corpus("cuda/sha256.sm_75"), &messages, 32);
    assert_same(&found, &want, "without constants");
}
