//! Instructions per call, counted by valgrind: the same on every run, whatever else the machine does.
//! Needs `valgrind` and `cargo install gungraun-runner` in the version of the dependency.
#![allow(missing_docs, reason = "gungraun's macros define undocumented items")]
#![allow(clippy::needless_pass_by_value, reason = "gungraun hands the input over before counting starts")]

mod super_frame;

use gungraun::{library_benchmark, library_benchmark_group, main};
use rubridge::engine::plan::{Planned, plan};
use rubridge::wire::checksum::Sum;
use rubridge::wire::offload::Features;
use std::hint::black_box;

#[library_benchmark]
#[bench::acknowledgement(vec![0x5a; 40])]
#[bench::segment(vec![0x5a; 1448])]
fn checksum(bytes: Vec<u8>) -> u16 {
    Sum::default().bytes(black_box(&bytes)).checksum()
}

#[library_benchmark]
#[bench::two(super_frame::tcp4(2 * 1448))]
#[bench::forty_five(super_frame::tcp4(45 * 1448))]
fn cut(mut frame: Vec<u8>) -> usize {
    super_frame::cut(black_box(&mut frame))
}

#[library_benchmark]
#[bench::forty_five(super_frame::tcp4(45 * 1448))]
fn pass(mut frame: Vec<u8>) -> Option<Planned> {
    plan(black_box(&mut frame), super_frame::OFFLOAD, Features::ALL, Some(1500)).ok()
}

#[library_benchmark]
#[bench::forty_five(super_frame::pieces(45 * 1448))]
fn merge(pieces: Vec<Vec<u8>>) -> usize {
    super_frame::merge(black_box(&pieces), &mut Vec::with_capacity(70_000))
}

library_benchmark_group!(name = per_frame, benchmarks = [checksum, cut, pass, merge]);
main!(library_benchmark_groups = per_frame);
