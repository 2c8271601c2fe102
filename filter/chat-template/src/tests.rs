//! Tests of rendering by subject.
