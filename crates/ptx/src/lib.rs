//! PTX front end: text in, tree and text out. It knows no GPU and no Wasm, and does no I/O.
//!
//! The pipeline is [`parse`] -> [`Module`](ast::Module) -> [`validate`] -> [`Validated`] -> [`Admitted`]:
//! each step takes only what the step before it made, so that a device can be given nothing but text
//! that went through all. [`read`] takes the first two at once.
//!
//! Any bytes may be given to it. They end as a tree or as one [`Error`], in time and memory proportional
//! to their length and within [`limits`]; nothing is allocated from a number in the text. Instructions
//! are not looked at: one that nobody knows is a tree too.
//!
//! ```
//! use wasi_cuda_ptx as ptx;
//!
//! let source = b"
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry store(.param .u64 out, .param .u16 value)
//! {
//!     .reg .b64 %address;
//!     .reg .b16 %value;
//!     ld.param.u64 %address, [out];
//!     ld.param.u16 %value, [value];
//!     st.u16 [%address], %value;
//!     ret;
//! }";
//! let program = ptx::read(source)?;
//! let store = program.entry("store").expect("the entry is there");
//! assert_eq!((store.parameters[1].offset, store.size), (8, 10));
//!
//! let text = ptx::print(program.module());
//! assert!(ptx::parse(text.as_bytes())? == *program.module());
//!
//! let error = ptx::read(b".version 8.0\n.target sm_80\n.entry k() { bra AWAY; }").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "line 3, column 14: label `AWAY` is not in this block or one around it",
//! );
//! # Ok::<(), ptx::Error>(())
//! ```

mod admitted;
pub mod ast;
mod confined;
mod error;
mod isa;
mod keywords;
mod layout;
mod lexer;
pub mod limits;
mod number;
pub mod oracle;
mod parser;
mod print;
mod sandbox;
mod signature;
mod validate;
mod verify;

pub use admitted::{Admitted, Trust, TrustedByEmbedder};
pub use confined::{
    ConfineOptions, Confined, ConfinedEntry, ConfinedMap, GlobalVariable, Globals, LaunchNeeds,
    Level, Site, SiteKind, Verified, WindowForm,
};
pub use error::{Error, ErrorKind, Excerpt, VerifyError, VerifyErrorKind};
pub use parser::parse;
pub use print::print;
pub use sandbox::confine;
pub use signature::{Class, Parameter, PointerParameter, Signature};
pub use validate::{Validated, read, validate};
pub use verify::verify;
