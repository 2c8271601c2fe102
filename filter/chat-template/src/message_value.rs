//! A message as templates see it.

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectExt};
use std::sync::Arc;

/// A map of a few known fields. As a map that hashes its keys it costs a fifth of a rendering more.
#[derive(Debug)]
pub(crate) struct MessageValue(pub(crate) Vec<(&'static str, Value)>);

impl MessageValue {
    fn field(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

impl Object for MessageValue {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.field(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.field(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_key_value_enumerator(|this| {
            Box::new(this.0.iter().map(|(name, value)| (Value::from(*name), value.clone())))
        })
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}
