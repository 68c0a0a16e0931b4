//! Lowering of matrix fragments: `ldmatrix`, `stmatrix`, `mma` and `wmma`.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{MatrixSite, NO_SLOT, Op, Space, Width};
use crate::cpu::tile::{Element, Layout, Tile, TileAccess};

use super::access::space;
use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal};

impl Lowering<'_, '_> {
    fn matrix(&mut self, site: MatrixSite) -> Lowered<()> {
        let index = u32::try_from(self.image.matrices.len()).map_err(|_| Refusal::Form)?;
        self.image.matrices.push(site);
        self.emit(Op::Matrix { site: index })
    }

    /// Exactly these many 32-bit registers.
    fn words<const N: usize>(&mut self, operand: &Operand, count: usize) -> Lowered<[u16; N]> {
        self.registers(operand, count, Width::B32)
    }

    /// Exactly these many registers of a width.
    fn registers<const N: usize>(
        &mut self,
        operand: &Operand,
        count: usize,
        wanted: Width,
    ) -> Lowered<[u16; N]> {
        let (slots, width) = match operand {
            Operand::Vector(_) => self.vector(operand)?,
            _ => {
                let (slot, width) = self.loose_destination(operand)?;
                (vec![slot], width)
            }
        };
        if slots.len() != count || count > N || width != wanted || slots.contains(&NO_SLOT) {
            return Err(Refusal::Form);
        }
        let mut out = [NO_SLOT; N];
        out[..count].copy_from_slice(&slots);
        Ok(out)
    }

    /// `ldmatrix` and `stmatrix` of 8x8 matrices of 16-bit elements.
    pub(super) fn matrix_access(
        &mut self,
        load: bool,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let count = match modifiers.take_of(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2_u8,
            Some(_) => 4,
            None => return Err(Refusal::Form),
        };
        let transposed = modifiers.take("trans");
        let known = ["sync", "aligned", "m8n8", "b16"]
            .iter()
            .all(|modifier| modifiers.take(modifier))
            && modifiers.take_of(&["shared", "shared::cta"]).is_some();
        modifiers.finish()?;
        let (data, address) = match (load, operands) {
            (true, [data, address]) | (false, [address, data]) => (data, address),
            _ => return Err(Refusal::Form),
        };
        if !known {
            return Err(Refusal::Form);
        }
        let slots = self.words(data, count.into())?;
        let of = self.address(address)?;
        if of.slot == NO_SLOT {
            return Err(Refusal::Form);
        }
        let (address, wide_address, offset) = (of.slot, of.wide, of.offset);
        self.matrix(if load {
            MatrixSite::Load {
                d: slots,
                count,
                transposed,
                address,
                wide_address,
                offset,
            }
        } else {
            MatrixSite::Store {
                a: slots,
                count,
                transposed,
                address,
                wide_address,
                offset,
            }
        })
    }

    /// `mma.sync`.
    pub(super) fn multiply(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let known = modifiers.take("sync") && modifiers.take("aligned");
        let shape = Shape::take(&MULTIPLY_SHAPES, &mut modifiers, Kind::Multiply)?;
        if !known || !modifiers.take("row") || !modifiers.take("col") {
            return Err(Refusal::Form);
        }
        self.multiply_tiles(shape, modifiers, operands)
    }

    /// `wmma`.
    pub(super) fn tiles(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let action = modifiers.take_of(&["load", "mma", "store"]);
        let known = modifiers.take("sync") && modifiers.take("aligned");
        let shape = Shape::take(&SHAPES, &mut modifiers, Kind::Wmma)?;
        let (Some(action), true) = (action, known) else {
            return Err(Refusal::Form);
        };
        if action == "mma" {
            for _ in 0..2 {
                modifiers.take_of(&["row", "col"]).ok_or(Refusal::Form)?;
            }
            return self.multiply_tiles(shape, modifiers, operands);
        }
        let load = action == "load";
        let part = modifiers.take_of(&["a", "b", "c", "d"]);
        let by_column = modifiers.take_of(&["row", "col"]);
        let space = space(&mut modifiers);
        let element = element(&mut modifiers)?;
        modifiers.finish()?;
        let part = match (load, part) {
            (true, Some("a")) => Part::A,
            (true, Some("b")) => Part::B,
            (true, Some("c")) | (false, Some("d")) => Part::C,
            _ => return Err(Refusal::Form),
        };
        let (data, address, stride) = match (load, operands) {
            (true, [data, address]) | (false, [address, data]) => (data, address, None),
            (true, [data, address, stride]) | (false, [address, data, stride]) => {
                (data, address, Some(stride))
            }
            _ => return Err(Refusal::Form),
        };
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(Refusal::Form);
        }
        let tile = self.tile(&shape, part, element, data)?;
        let stride = stride
            .map(|stride| self.source(stride, T::U32))
            .transpose()?;
        let of = self.address(address)?;
        let space = self.accessed(space, &of)?;
        let (address, wide_address, offset) = match of.slot {
            NO_SLOT => {
                let offset = u64::try_from(of.offset).map_err(|_| Refusal::Form)?;
                (self.long_value(offset)?, true, 0)
            }
            slot => (slot, of.wide, of.offset),
        };
        let access = TileAccess {
            tile,
            address,
            wide_address,
            offset,
            space,
            stride,
            by_column: by_column.ok_or(Refusal::Form)? == "col",
        };
        self.matrix(if load {
            MatrixSite::TileLoad(access)
        } else {
            MatrixSite::TileStore(access)
        })
    }

    /// A product. How `a` and `b` lay in memory does not matter here.
    fn multiply_tiles(
        &mut self,
        shape: Shape,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let [d, a, b, c] = operands else {
            return Err(Refusal::Form);
        };
        let saturate = modifiers.take("satfinite");
        let mut types = Vec::new();
        while let Ok(element) = element(&mut modifiers) {
            types.push(element);
        }
        modifiers.finish()?;
        // With `wmma`, of 16-bit floats only the accumulators' types are written.
        let [of_d, of_a, of_b, of_c] = match types[..] {
            [d, c] if shape.kind == Kind::Wmma => [d, Element::F16, Element::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return Err(Refusal::Form),
        };
        let is_integer = of_d == Element::S32;
        let class = |of: Element| match of {
            Element::U8 => Element::S8,
            Element::E5m2 => Element::E4m3,
            of => of,
        };
        let mixes = shape.kind == Kind::Multiply;
        if class(of_a) != class(of_b) || of_a != of_b && !mixes || saturate && !is_integer {
            return Err(Refusal::Form);
        }
        let tiles = [
            self.tile(&shape, Part::A, of_a, a)?,
            self.tile(&shape, Part::B, of_b, b)?,
            self.tile(&shape, Part::C, of_c, c)?,
            self.tile(&shape, Part::C, of_d, d)?,
        ];
        let fits = match of_a {
            Element::E4m3 | Element::E5m2 | Element::F16 => {
                matches!(
                    (of_c, of_d),
                    (Element::F16, Element::F16) | (Element::F32, Element::F32)
                ) || shape.kind == Kind::Wmma && !is_integer
            }
            Element::Bf16 | Element::Tf32 => of_c == Element::F32 && of_d == Element::F32,
            Element::S8 | Element::U8 => of_c == Element::S32 && is_integer,
            _ => of_c == Element::F64 && of_d == Element::F64,
        };
        if !fits {
            return Err(Refusal::Form);
        }
        self.matrix(MatrixSite::TileMultiply { tiles, saturate })
    }

    /// The registers of a fragment, as many as PTX says that it has.
    fn tile(
        &mut self,
        shape: &Shape,
        part: Part,
        element: Element,
        operand: &Operand,
    ) -> Lowered<Tile> {
        let [m, n, k] = shape.sides;
        let (rows, columns) = match part {
            Part::A => (m, k),
            Part::B => (k, n),
            Part::C => (m, n),
        };
        let is_accumulator = part == Part::C;
        let allowed = if is_accumulator {
            matches!(
                element,
                Element::F16 | Element::F32 | Element::F64 | Element::S32
            )
        } else {
            shape.elements.contains(&element)
        };
        let bytes = u32::from(rows) * u32::from(columns) * element.bytes() / 32;
        // With `wmma`, factors of f16 have eight registers whatever their shape.
        let registers = match element {
            Element::F16 if !is_accumulator && shape.kind == Kind::Wmma => 8,
            Element::F64 => bytes / 8,
            _ => bytes / 4,
        };
        let count = usize::try_from(registers).map_err(|_| Refusal::Form)?;
        if !allowed {
            return Err(Refusal::Form);
        }
        let layout = match (shape.kind, part) {
            (Kind::Wmma, _) => Layout::Dense,
            (Kind::Multiply, Part::A) => Layout::Left,
            (Kind::Multiply, Part::B) => Layout::Right,
            (Kind::Multiply, Part::C) => Layout::Sum,
        };
        let width = if element == Element::F64 {
            Width::B64
        } else {
            Width::B32
        };
        Ok(Tile {
            slots: self.registers(operand, count, width)?,
            count: u8::try_from(count).map_err(|_| Refusal::Form)?,
            element,
            layout,
            rows,
            columns,
        })
    }
}

/// Which matrix a fragment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    A,
    B,
    /// Also the result.
    C,
}

/// The two instructions that multiply fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Multiply,
    Wmma,
}

/// M, N and K of an instruction, and what the elements of its factors may be.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    sides: [u8; 3],
    elements: &'static [Element],
}

/// A shape's name, sides and elements.
type Named = (&'static str, [u8; 3], &'static [Element]);

impl Shape {
    /// Takes the shape that is written.
    fn take(list: &[Named], modifiers: &mut Modifiers<'_>, kind: Kind) -> Lowered<Self> {
        let found = list.iter().find(|named| modifiers.take(named.0));
        let &(_, sides, elements) = found.ok_or(Refusal::Form)?;
        Ok(Self {
            kind,
            sides,
            elements,
        })
    }
}

/// What most shapes of `wmma` are for.
const NARROW: &[Element] = &[Element::Bf16, Element::F16, Element::S8, Element::U8];

/// The shapes of `wmma` (PTX ISA, "Matrix Shape") but those of elements of less than a byte.
const SHAPES: [Named; 5] = [
    ("m16n16k16", [16, 16, 16], NARROW),
    ("m32n8k16", [32, 8, 16], NARROW),
    ("m8n32k16", [8, 32, 16], NARROW),
    ("m16n16k8", [16, 16, 8], &[Element::Tf32]),
    ("m8n8k4", [8, 8, 4], &[Element::F64]),
];

/// The shapes of `mma` likewise, but those of compute capability 7.0 and the ones of small floats that no nvcc emits without
/// being asked to.
const MULTIPLY_SHAPES: [Named; 5] = [
    ("m16n8k4", [16, 8, 4], &[Element::F64, Element::Tf32]),
    (
        "m16n8k8",
        [16, 8, 8],
        &[Element::Bf16, Element::F16, Element::F64, Element::Tf32],
    ),
    (
        "m16n8k16",
        [16, 8, 16],
        &[
            Element::Bf16,
            Element::F16,
            Element::F64,
            Element::S8,
            Element::U8,
        ],
    ),
    (
        "m16n8k32",
        [16, 8, 32],
        &[Element::E4m3, Element::E5m2, Element::S8, Element::U8],
    ),
    ("m8n8k4", [8, 8, 4], &[Element::F64]),
];

/// Takes the next type.
fn element(modifiers: &mut Modifiers<'_>) -> Lowered<Element> {
    let types = [
        "bf16", "e4m3", "e5m2", "f16", "f32", "f64", "s32", "s8", "tf32", "u8",
    ];
    Ok(match modifiers.take_of(&types).ok_or(Refusal::Form)? {
        "bf16" => Element::Bf16,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "f16" => Element::F16,
        "f32" => Element::F32,
        "f64" => Element::F64,
        "s32" => Element::S32,
        "s8" => Element::S8,
        "tf32" => Element::Tf32,
        _ => Element::U8,
    })
}
