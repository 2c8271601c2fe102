//! Workers and a dispatcher together, as an Envoy would run them.

mod article;
mod detectors;
mod fleet;
mod flow;
mod recovery;
mod shares;
mod simulation;
mod views;

pub(crate) use fleet::control;
