//! The VM that holds the applier's role traps.
