//! Lowering of matrix fragments: `ldmatrix`, `stmatrix`, `mma` and `wmma`.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{MatrixSite, Multiply, NO_SLOT, Op, Space, Width};
use crate::cpu::tile::{Element, Tile, TileAccess};

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

    /// `mma.sync` of 16-bit floats.
    pub(super) fn multiply(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let k = match modifiers.take_of(&["m16n8k8", "m16n8k16"]) {
            Some("m16n8k8") => 8_u8,
            Some(_) => 16,
            None => return Err(Refusal::Form),
        };
        let known = ["sync", "aligned", "row", "col"]
            .iter()
            .all(|modifier| modifiers.take(modifier));
        let types = [
            modifiers.scalar()?,
            modifiers.scalar()?,
            modifiers.scalar()?,
            modifiers.scalar()?,
        ];
        modifiers.finish()?;
        let [d, a, b, c] = operands else {
            return Err(Refusal::Form);
        };
        let (bf16, wide) = match types {
            [T::F32, T::F16, T::F16, T::F32] => (false, true),
            [T::F16, T::F16, T::F16, T::F16] => (false, false),
            [T::F32, T::Bf16, T::Bf16, T::F32] => (true, true),
            _ => return Err(Refusal::Form),
        };
        if !known {
            return Err(Refusal::Form);
        }
        let accumulators = if wide { 4 } else { 2 };
        let multiply = Multiply {
            a: self.words(a, usize::from(k) / 4)?,
            b: self.words(b, usize::from(k) / 8)?,
            c: self.words(c, accumulators)?,
            d: self.words(d, accumulators)?,
            k,
            bf16,
            wide,
        };
        self.matrix(MatrixSite::Multiply(multiply))
    }

    /// `wmma`.
    pub(super) fn tiles(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let action = modifiers.take_of(&["load", "mma", "store"]);
        let known = modifiers.take("sync") && modifiers.take("aligned");
        let shape = SHAPES
            .iter()
            .find(|shape| modifiers.take(shape.0))
            .map(|&(_, sides, elements)| (sides, elements));
        let (Some(action), true, Some((sides, elements))) = (action, known, shape) else {
            return Err(Refusal::Form);
        };
        let shape = Shape { sides, elements };
        if action == "mma" {
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

    /// `wmma.mma`. How `a` and `b` lay in memory does not matter here.
    fn multiply_tiles(
        &mut self,
        shape: Shape,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let [d, a, b, c] = operands else {
            return Err(Refusal::Form);
        };
        for _ in 0..2 {
            modifiers.take_of(&["row", "col"]).ok_or(Refusal::Form)?;
        }
        let saturate = modifiers.take("satfinite");
        let mut types = Vec::new();
        while let Ok(element) = element(&mut modifiers) {
            types.push(element);
        }
        modifiers.finish()?;
        // Of 16-bit floats only the accumulators' types are written.
        let [of_d, of_a, of_b, of_c] = match types[..] {
            [d, c] => [d, Element::F16, Element::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return Err(Refusal::Form),
        };
        let is_integer = of_d == Element::S32;
        if of_a != of_b || saturate && !is_integer {
            return Err(Refusal::Form);
        }
        let tiles = [
            self.tile(&shape, Part::A, of_a, a)?,
            self.tile(&shape, Part::B, of_b, b)?,
            self.tile(&shape, Part::C, of_c, c)?,
            self.tile(&shape, Part::C, of_d, d)?,
        ];
        let fits = match of_a {
            Element::F16 => {
                matches!(of_c, Element::F16 | Element::F32) && !is_integer && of_d != Element::F64
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
        // Fragments of f16 have eight registers whatever their shape.
        let registers = match element {
            Element::F16 if !is_accumulator => 8,
            Element::F64 => bytes / 8,
            _ => bytes / 4,
        };
        let count = usize::try_from(registers).map_err(|_| Refusal::Form)?;
        if !allowed || (element == Element::F64) != (shape.elements == [Element::F64]) {
            return Err(Refusal::Form);
        }
        let width = if element == Element::F64 {
            Width::B64
        } else {
            Width::B32
        };
        Ok(Tile {
            slots: self.registers(operand, count, width)?,
            count: u8::try_from(count).map_err(|_| Refusal::Form)?,
            element,
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

/// M, N and K of a `wmma` instruction, and what the elements of its factors may be.
#[derive(Clone, Copy, Debug)]
struct Shape {
    sides: [u8; 3],
    elements: &'static [Element],
}

/// What most shapes are for.
const NARROW: &[Element] = &[Element::Bf16, Element::F16, Element::S8, Element::U8];

/// The shapes of `wmma` (PTX ISA, "Matrix Shape") but those of elements of less than a byte.
const SHAPES: [(&str, [u8; 3], &[Element]); 5] = [
    ("m16n16k16", [16, 16, 16], NARROW),
    ("m32n8k16", [32, 8, 16], NARROW),
    ("m8n32k16", [8, 32, 16], NARROW),
    ("m16n16k8", [16, 16, 8], &[Element::Tf32]),
    ("m8n8k4", [8, 8, 4], &[Element::F64]),
];

/// Takes the next type.
fn element(modifiers: &mut Modifiers<'_>) -> Lowered<Element> {
    let types = ["bf16", "f16", "f32", "f64", "s32", "s8", "tf32", "u8"];
    Ok(match modifiers.take_of(&types).ok_or(Refusal::Form)? {
        "bf16" => Element::Bf16,
        "f16" => Element::F16,
        "f32" => Element::F32,
        "f64" => Element::F64,
        "s32" => Element::S32,
        "s8" => Element::S8,
        "tf32" => Element::Tf32,
        _ => Element::U8,
    })
}
