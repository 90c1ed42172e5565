//! rubridge: a userspace bridge for GNS3 labs that leaves every NIC offload on.
//!
//! A frame travels one way: an ingress of [`nio`] reads it with the metadata the kernel keeps beside it
//! ([`wire::offload`]), [`wire::coalesce`] appends the segments that have arrived behind it, [`engine::plan`]
//! decides what the egress needs, [`wire::segment`] cuts where it cannot take a super-frame, and an egress of
//! [`nio`] writes it. Where there are packet filters ([`filter`]) or a capture ([`capture`]), it passes them in
//! between ([`engine::stages`]). [`sys`] is the only place that talks to the kernel and the only one that may use
//! `unsafe`.
//!
//! Bridges are made by command ([`hypervisor`]) or from a file ([`config`]); either acts on a [`lab`].

pub mod capture;
pub mod cli;
pub mod config;
pub mod engine;
pub mod filter;
pub mod hypervisor;
pub mod lab;
pub mod nio;
mod number;
pub mod output;
mod patience;
pub mod sys;
pub mod wire;
