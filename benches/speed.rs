//! Wall-clock time of what is done per frame in software. Compare two builds only side by side:
//! `cargo bench --bench speed -- --save-baseline before`, then `-- --baseline before`.
#![allow(missing_docs, reason = "criterion's macros define undocumented items")]

mod super_frame;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rubridge::wire::checksum::Sum;
use std::hint::black_box;

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for length in [40, 1448, 65_160] {
        let bytes = vec![0x5a; length];
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(length.to_string(), |bencher| {
            bencher.iter(|| Sum::default().bytes(black_box(&bytes)).checksum());
        });
    }
}

fn cut(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cut");
    for (name, payload) in [("2 segments", 2 * 1448), ("45 segments", 45 * 1448)] {
        let frame = super_frame::tcp4(payload);
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(|| frame.clone(), |frame| super_frame::cut(frame), BatchSize::SmallInput);
        });
    }
}

fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    let pieces = super_frame::pieces(45 * 1448);
    let mut room = Vec::with_capacity(70_000);
    assert_eq!(super_frame::merge(&pieces, &mut room), 66 + 45 * 1448, "all of them are merged");
    group.throughput(Throughput::Bytes(45 * 1448));
    group.bench_function("45 segments", |bencher| bencher.iter(|| super_frame::merge(&pieces, &mut room)));
}

criterion_group!(benches, checksum, cut, merge);
criterion_main!(benches);
