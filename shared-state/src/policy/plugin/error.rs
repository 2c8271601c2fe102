//! Why a plugin is refused.

use core::fmt;

/// Why a plugin was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginError {
    /// No such type; the nearest known one, if one is near.
    UnknownType {
        /// As written.
        given: String,
        /// The nearest.
        nearest: Option<&'static str>,
    },
    /// A type that Warmroute does not have; what to use instead.
    Unsupported {
        /// The type.
        given: String,
        /// Advice.
        instead: &'static str,
    },
    /// No such parameter; the nearest, if one is near. `at` is its path, like `conditions[0].metric`.
    UnknownParameter {
        /// Path of it.
        at: String,
        /// The nearest.
        nearest: Option<&'static str>,
    },
    /// A value that cannot be.
    Value {
        /// Path of it; empty for the parameters as a whole.
        at: String,
        /// What would be right.
        what: String,
    },
}

impl PluginError {
    /// Path of the parameter that it is about, if it is about one.
    #[must_use]
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::UnknownParameter { at, .. } | Self::Value { at, .. } => Some(at),
            Self::UnknownType { .. } | Self::Unsupported { .. } => None,
        }
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = |f: &mut fmt::Formatter<'_>, nearest: Option<&str>| match nearest {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => Ok(()),
        };
        match self {
            Self::UnknownType { given, nearest: near } => {
                write!(f, "there is no plugin type `{given}`")?;
                nearest(f, *near)
            }
            Self::Unsupported { given, instead } => {
                write!(f, "Warmroute has no plugin type `{given}`; {instead}")
            }
            Self::UnknownParameter { at, nearest: near } => {
                write!(f, "there is no parameter `{at}`")?;
                nearest(f, *near)
            }
            Self::Value { at, what } if at.is_empty() => write!(f, "parameters must be {what}"),
            Self::Value { at, what } => write!(f, "parameter `{at}` must be {what}"),
        }
    }
}

impl core::error::Error for PluginError {}
