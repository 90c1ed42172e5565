//! What the fuzz targets share: traffic made from a fuzzer's bytes, ends of a bridge that follow a script, and a
//! cutter of super-frames that has nothing in common with rubridge's.
#![forbid(unsafe_code)]

pub mod ends;
pub mod flow;
pub mod reference;
pub mod traffic;
