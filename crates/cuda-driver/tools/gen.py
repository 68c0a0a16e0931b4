#!/usr/bin/env python3
"""Writes src/table.rs from the bindings that cust re-exports.

    tools/gen.py ~/.cargo/registry/src/*/cust_raw-0.11.3/src/cuda.rs > src/table.rs
"""
import re
import sys
import textwrap

BY_HAND = {"cuGetErrorName", "cuGetErrorString"}
WIDTH = 100

src = open(sys.argv[1]).read()


def declaration(name, args):
    line = f"    fn {name}({', '.join(args)});"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"    fn {name}(", *(f"        {arg}," for arg in args), "    );"])


codes = sorted({int(v) for v in re.findall(r"\b(?:CUDA_SUCCESS|CUDA_ERROR_\w+) = (\d+),", src)})
print("// Written by tools/gen.py from cust_raw 0.11.3 (CUDA 11.4's ABI). Not edited by hand.")
print("/// Every value that cust_raw's closed `CUresult` enum has.")
print(f"pub(crate) const KNOWN: [u32; {len(codes)}] = [")
print(textwrap.indent(textwrap.fill(", ".join(map(str, codes)) + ",", WIDTH - 4), "    "))
print("];")
print("entry_points! {")
for m in re.finditer(r"pub fn (cu[A-Za-z0-9_]+)\(([^;]*?)\)\s*->\s*CUresult;", src, re.S):
    name, args = m.group(1), re.sub(r"\s+", " ", m.group(2)).replace("::std::os::raw::", "")
    if name not in BY_HAND:
        print(declaration(name, [arg.strip() for arg in args.split(",") if arg.strip()]))
print("}")
