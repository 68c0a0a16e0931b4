//! Every class of hostile kernel: the files of `fixtures/hostile`, and texts that are too long for a file.

use std::fmt::Write as _;

use super::Class;

/// Gives the names of all files of `fixtures/hostile` to a macro.
macro_rules! each_hostile_file {
    ($then:ident) => {
        $then! {
            barrier_from_a_register,
            barrier_of_a_count,
            barriers_of_other_numbers,
            beside_the_window,
            const_out_of_range,
            divergent_barrier,
            endless_loop,
            endless_recursion,
            failed_assertion,
            forged_addresses,
            generic_out_of_range,
            global_out_of_range,
            huge_grid,
            huge_local_frame,
            leftovers,
            local_out_of_range,
            misaligned,
            nanosleep_chain,
            param_out_of_range,
            param_past_the_end,
            shared_out_of_range,
            spills_in_shared_memory,
            symbol_spoofing,
            text_injection,
            traps,
            wild_atomics,
            wild_cp_async,
        }
    };
}
pub(crate) use each_hostile_file;

macro_rules! texts {
    ($($name:ident,)*) => {
        /// Names and texts of the files.
        const FILES: &[(&str, &str)] = &[$((
            stringify!($name),
            include_str!(concat!("../../../../fixtures/hostile/", stringify!($name), ".ptx")),
        ),)*];
    };
}
each_hostile_file!(texts);

/// All classes.
pub(crate) fn classes() -> Vec<Class> {
    let files = FILES.iter().map(|(name, text)| Class::read(name, text));
    files.chain([jit_bomb()]).collect()
}

/// One class by its name.
pub(crate) fn class(name: &str) -> Class {
    let mut all = classes().into_iter();
    all.find(|class| class.name == name)
        .unwrap_or_else(|| panic!("there is no class `{name}`"))
}

/// Text that takes the driver's compiler long, which nobody can make stop.
pub(crate) fn jit_bomb() -> Class {
    Class::read("jit_bomb", &slow_to_compile(2_000, 20_000))
}

/// Text of a kernel `bomb` with so many registers that live long, in so many blocks.
pub(crate) fn slow_to_compile(registers: usize, blocks: usize) -> String {
    let mut text = String::from(
        "// load: bomb = UnsupportedPtx | ok\n\
        .version 7.8\n.target sm_80\n.address_size 64\n.visible .entry bomb(.param .u64 data)\n{\n",
    );
    writeln!(
        text,
        ".reg .b64 %d; .reg .b32 %x<{registers}>; .reg .pred %p;\nld.param.u64 %d, [data];"
    )
    .unwrap();
    for register in 0..registers {
        writeln!(text, "ld.volatile.global.u32 %x{register}, [%d];").unwrap();
    }
    for block in 0..blocks {
        let [a, b, c] = [block, block * 7 + 1, block * 13 + 5].map(|number| number % registers);
        writeln!(
            text,
            "B{block}:\nmad.lo.u32 %x{a}, %x{b}, %x{c}, %x{a};\nsetp.lt.u32 %p, %x{b}, %x{a};\n@%p bra B{};",
            block * 31 % blocks
        )
        .unwrap();
    }
    for register in 0..registers {
        writeln!(text, "st.volatile.global.u32 [%d], %x{register};").unwrap();
    }
    text.push_str("ret;\n}\n");
    text
}
