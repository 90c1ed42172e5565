//! Tests of the whole program on real interfaces.
