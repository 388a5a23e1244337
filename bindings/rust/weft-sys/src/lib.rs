//! Raw declarations of libweft, generated from `weft.h`. The crate `weft` is the interface for programs.
//!
//! The comments are those of the C header; `man 3 weft` has more.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

mod raw;

pub use raw::*;
