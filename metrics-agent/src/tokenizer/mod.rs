//! A model's tokenizer, read from its folder.
pub mod bytes;
