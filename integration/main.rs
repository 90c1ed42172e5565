//! Tests of the whole program on real interfaces, in network namespaces of their own.
//!
//! They need root, and say so where they do not have it.

mod capture;
mod command_line;
mod differential;
mod docker_brctl;
mod engine;
mod lab;
mod linux_raw;
mod runs;
mod tap;
mod transcripts;
mod transfer;
