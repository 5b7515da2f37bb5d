//! The container from the outside. One binary, since each costs a link.

#[path = "../common/mod.rs"]
mod common;

mod atomic;
mod consume;
mod edit;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod properties;
mod round_trip;
mod split;
