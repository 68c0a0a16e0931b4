//! `cust_raw` asks the linker for `-lcuda`. This crate defines every symbol that the bindings
//! declare, so nothing is ever taken from that library; but the linker still has to find one.
//! An empty archive is enough, and needs no C compiler.

use std::error::Error;
use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("libcuda.a"), b"!<arch>\n")?;
    println!("cargo::rustc-link-search=native={}", out.display());
    Ok(())
}
