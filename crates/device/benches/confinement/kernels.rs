//! The kernels: eleven that hand-written CUDA is made of, one that lives in local memory, four that Triton emitted; all from
//! `fixtures/corpus`. How large their data is and how they are launched.

use crate::arena::{Arena, Argument, Array, Noise};
use crate::harness::Shape;

/// What of a kernel is measured.
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// In `fixtures/corpus`.
    pub(crate) file: &'static str,
    pub(crate) entry: &'static str,
    /// Places its data, large where it is measured, small where it only has to run.
    pub(crate) plan: fn(&mut Arena, bool) -> Plan,
}

/// One launch.
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) arguments: Vec<Argument>,
    /// The array that it writes.
    pub(crate) output: Array,
}

const fn kernel(
    name: &'static str,
    file: &'static str,
    entry: &'static str,
    plan: fn(&mut Arena, bool) -> Plan,
) -> Kernel {
    Kernel {
        name,
        file,
        entry,
        plan,
    }
}

/// How many of [`KERNELS`], from the first, are the list that earlier measurements of such schemes used.
pub(crate) const CLASSIC: usize = 11;

pub(crate) const KERNELS: &[Kernel] = &[
    kernel("vecadd", "cuda/vecadd.sm_75", "vecadd", vecadd),
    kernel("saxpy4", "cuda/saxpy.sm_80", "saxpy4", saxpy4),
    kernel("stencil5", "cuda/stencil.sm_80", "stencil5", stencil5),
    kernel(
        "matmul_tiled",
        "cuda/matmul_tiled.sm_80",
        "matmul_tiled",
        matmul_tiled,
    ),
    kernel(
        "matmul_reg",
        "cuda/matmul_reg.sm_80",
        "matmul_reg",
        matmul_reg,
    ),
    kernel(
        "reduce_sum",
        "cuda/reduce_shfl.sm_80",
        "reduce_sum",
        reduce_sum,
    ),
    kernel(
        "histogram256",
        "cuda/histogram.sm_75",
        "histogram256",
        histogram256,
    ),
    kernel("nbody", "cuda/nbody.sm_80", "nbody", nbody),
    kernel("softmax", "cuda/softmax.sm_80", "softmax", softmax),
    kernel("transpose", "cuda/transpose.sm_75", "transpose", transpose),
    kernel("spmv_csr", "cuda/spmv_csr.sm_80", "spmv_csr", spmv_csr),
    kernel("median9", "cuda/local_mem.sm_75", "median9", median9),
    kernel(
        "triton_softmax",
        "triton/softmax.sm_80",
        "softmax",
        triton_softmax,
    ),
    kernel(
        "triton_layernorm",
        "triton/layernorm.sm_80",
        "layernorm",
        triton_layernorm,
    ),
    kernel(
        "triton_matmul",
        "triton/matmul.sm_80",
        "matmul",
        triton_matmul,
    ),
    kernel(
        "triton_flash_fwd",
        "triton/flash_fwd.sm_80",
        "flash_fwd",
        triton_flash_fwd,
    ),
];

fn int(size: usize) -> Argument {
    Argument::I32(i32::try_from(size).expect("a small size"))
}

fn count(size: usize) -> u32 {
    u32::try_from(size).expect("a small size")
}

fn pick(large: bool, sizes: [usize; 2]) -> usize {
    sizes[usize::from(!large)]
}

/// Of a kernel whose arguments are some inputs, the output, and numbers.
fn plan(
    shape: Shape,
    inputs: &[Array],
    output: Array,
    numbers: impl IntoIterator<Item = Argument>,
) -> Plan {
    let arrays = inputs.iter().chain([&output]);
    let mut arguments: Vec<_> = arrays.map(|&array| Argument::Array(array)).collect();
    arguments.extend(numbers);
    Plan {
        shape,
        arguments,
        output,
    }
}

fn zeroes(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

fn vecadd(arena: &mut Arena, large: bool) -> Plan {
    let n = pick(large, [1 << 26, 1 << 12]);
    let inputs = [1, 2].map(|seed| arena.input(&Noise::new(seed).floats(n)));
    let output = arena.output(zeroes(4 * n));
    plan(Shape::line(count(n / 256), 256), &inputs, output, [int(n)])
}

fn saxpy4(arena: &mut Arena, large: bool) -> Plan {
    let n = pick(large, [1 << 26, 1 << 12]);
    let input = arena.input(&Noise::new(1).floats(n));
    let output = arena.output(Noise::new(2).floats(n));
    let mut plan = plan(
        Shape::line(count(n / 4 / 256), 256),
        &[input],
        output,
        [int(n)],
    );
    plan.arguments.insert(0, Argument::F32(0.75));
    plan
}

/// Width and height of an image.
fn image(large: bool) -> [usize; 2] {
    [pick(large, [16_384, 96]), pick(large, [8_192, 64])]
}

fn stencil5(arena: &mut Arena, large: bool) -> Plan {
    let [width, height] = image(large);
    let input = arena.input(&Noise::new(1).floats(width * height));
    let output = arena.output(zeroes(4 * width * height));
    let shape = Shape::plane([count(width / 32), count(height / 8)], [32, 8]);
    let weights = [Argument::F32(0.5), Argument::F32(0.125)];
    plan(
        shape,
        &[input],
        output,
        [int(width), int(height)].into_iter().chain(weights),
    )
}

fn matmul(arena: &mut Arena, large: bool, tile: usize, block: [u32; 2]) -> Plan {
    let n = pick(large, [2_048, 64]);
    let inputs = [1, 2].map(|seed| arena.input(&Noise::new(seed).floats(n * n)));
    let output = arena.output(zeroes(4 * n * n));
    let blocks = count(n / tile);
    plan(
        Shape::plane([blocks, blocks], block),
        &inputs,
        output,
        [int(n); 3],
    )
}

fn matmul_tiled(arena: &mut Arena, large: bool) -> Plan {
    matmul(arena, large, 16, [16, 16])
}

fn matmul_reg(arena: &mut Arena, large: bool) -> Plan {
    matmul(arena, large, 64, [256, 1])
}

fn reduce_sum(arena: &mut Arena, large: bool) -> Plan {
    let (n, blocks) = (pick(large, [1 << 28, 1 << 13]), pick(large, [1_056, 4]));
    let input = arena.input(&Noise::new(1).floats(n));
    let output = arena.output(zeroes(4 * blocks));
    plan(Shape::line(count(blocks), 512), &[input], output, [int(n)])
}

fn histogram256(arena: &mut Arena, large: bool) -> Plan {
    let (n, blocks) = (pick(large, [1 << 29, 1 << 13]), pick(large, [1_056, 4]));
    let input = arena.input(&Noise::new(7).bytes(n));
    let output = arena.output(zeroes(4 * 256));
    plan(Shape::line(count(blocks), 512), &[input], output, [int(n)])
}

fn nbody(arena: &mut Arena, large: bool) -> Plan {
    let n = pick(large, [1 << 16, 256]);
    let input = arena.input(&Noise::new(1).floats(4 * n));
    let output = arena.output(zeroes(16 * n));
    let shape = Shape::line(count(n / 256), 256).shared(4_096);
    plan(shape, &[input], output, [int(n), Argument::F32(0.01)])
}

fn softmax(arena: &mut Arena, large: bool) -> Plan {
    let (rows, columns) = (pick(large, [16_384, 4]), pick(large, [4_096, 512]));
    let input = arena.input(&Noise::new(1).floats(rows * columns));
    let output = arena.output(zeroes(4 * rows * columns));
    plan(
        Shape::line(count(rows), 256),
        &[input],
        output,
        [int(columns)],
    )
}

fn transpose(arena: &mut Arena, large: bool) -> Plan {
    let [width, height] = image(large);
    let input = arena.input(&Noise::new(1).floats(width * height));
    let output = arena.output(zeroes(4 * width * height));
    let shape = Shape::plane([count(width / 32), count(height / 32)], [32, 8]);
    plan(shape, &[input], output, [int(width), int(height)])
}

fn spmv_csr(arena: &mut Arena, large: bool) -> Plan {
    const A_ROW: usize = 32;
    let rows = pick(large, [1 << 20, 64]);
    let starts: Vec<u8> = (0..=rows)
        .flat_map(|row| count(row * A_ROW).to_le_bytes())
        .collect();
    let inputs = [
        arena.input(&starts),
        arena.input(&Noise::new(3).indices(rows * A_ROW, count(rows))),
        arena.input(&Noise::new(4).floats(rows * A_ROW)),
        arena.input(&Noise::new(5).floats(rows)),
    ];
    let output = arena.output(zeroes(4 * rows));
    plan(
        Shape::line(count(rows / 8), 256),
        &inputs,
        output,
        [int(rows)],
    )
}

fn median9(arena: &mut Arena, large: bool) -> Plan {
    let (width, height) = (pick(large, [8_192, 96]), pick(large, [4_096, 64]));
    let input = arena.input(&Noise::new(9).bytes(width * height));
    let output = arena.output(zeroes(width * height));
    let shape = Shape::plane([count(width / 32), count(height / 8)], [32, 8]);
    plan(shape, &[input], output, [int(width), int(height), int(4)])
}

/// Triton's launches end in two pointers to scratch memory, which these kernels have none of.
fn triton(mut plan: Plan) -> Plan {
    let unused = Argument::Array(plan.output);
    plan.arguments.extend([unused, unused]);
    plan
}

fn triton_softmax(arena: &mut Arena, large: bool) -> Plan {
    const COLUMNS: usize = 1_024;
    let rows = pick(large, [65_536, 4]);
    let input = arena.input(&Noise::new(1).floats(rows * COLUMNS));
    let output = arena.output(zeroes(4 * rows * COLUMNS));
    let shape = Shape::line(count(rows), 128).shared(16);
    triton(plan(shape, &[input], output, [int(COLUMNS), int(COLUMNS)]))
}

fn triton_layernorm(arena: &mut Arena, large: bool) -> Plan {
    const COLUMNS: usize = 512;
    let rows = pick(large, [1 << 17, 4]);
    let inputs = [
        arena.input(&Noise::new(1).halves(rows * COLUMNS)),
        arena.input(&Noise::new(2).floats(COLUMNS)),
        arena.input(&Noise::new(3).floats(COLUMNS)),
    ];
    let output = arena.output(zeroes(2 * rows * COLUMNS));
    let shape = Shape::line(count(rows), 128).shared(1_024);
    let numbers = [int(COLUMNS), int(COLUMNS), Argument::F32(1e-5)];
    triton(plan(shape, &inputs, output, numbers))
}

fn triton_matmul(arena: &mut Arena, large: bool) -> Plan {
    const TILE: usize = 32;
    let n = pick(large, [2_048, 64]);
    let inputs = [1, 2].map(|seed| arena.input(&Noise::new(seed).halves(n * n)));
    let output = arena.output(zeroes(2 * n * n));
    let blocks = count(n / TILE);
    let shape = Shape::plane([blocks, blocks], [128, 1]).shared(4_096);
    triton(plan(shape, &inputs, output, [int(n); 6]))
}

fn triton_flash_fwd(arena: &mut Arena, large: bool) -> Plan {
    const WIDTH: usize = 32;
    const TILE: usize = 32;
    let n = pick(large, [16_384, 64]);
    let inputs = [1, 2, 3].map(|seed| arena.input(&Noise::new(seed).halves(n * WIDTH)));
    let output = arena.output(zeroes(2 * n * WIDTH));
    let shape = Shape::line(count(n / TILE), 128).shared(10_240);
    let scale = Argument::F32(1.0 / 32_f32.sqrt());
    triton(plan(shape, &inputs, output, [int(n), scale]))
}
