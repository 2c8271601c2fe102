//! As much of HTTP/1.1 as stub and load generator need, without a copy of any body.

mod body;
mod head;

pub use body::BodyReader;
pub use head::{Head, read_head};
