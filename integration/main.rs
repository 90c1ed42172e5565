//! Tests of the whole program on real interfaces, in network namespaces of their own.
//!
//! They need root, and say so where they do not have it.

mod capture;
mod captures;
mod command_line;
mod commanded_nics;
mod commanded_taps;
mod config_file;
mod control;
mod delays;
mod differential;
mod docker_brctl;
mod engine;
mod filters;
mod gns3;
mod impairments;
mod inference;
mod iol;
mod lab;
mod lines;
mod linux_raw;
mod nodes;
mod privileges;
mod queued;
mod runs;
mod soak;
mod states;
mod tap;
mod tracing;
mod transcripts;
mod transfer;
mod tunnels;
mod two_hops;
mod unix_sockets;
