//! What tokens cost, in whole numbers: no float is ever added up.
//!
//! A price is per million tokens with up to nine digits after the point, so a token costs a whole number of
//! 10^-15 of the currency, and so does every sum.

use super::ReportError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// Digits of a price after the point.
const PRICE_DIGITS: usize = 9;
/// Digits of a cost after the point: a price's, and six for the million.
const COST_DIGITS: usize = PRICE_DIGITS + 6;

/// Price of a million tokens, in 10^-9 of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price(u64);

impl Price {
    /// Reads `0.15`, `2`, `12.50`.
    fn read(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > PRICE_DIGITS {
            return None;
        }
        let scaled = format!("{whole}{part:0<PRICE_DIGITS$}");
        // A million a token is no price.
        scaled.parse().ok().filter(|price| *price <= 10u64.pow(18)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| {
            let what =
                "is no price; give a decimal number like 0.15, up to nine digits after the point";
            serde::de::Error::custom(format!("`{text}` {what}"))
        })
    }
}

/// A sum of money, in 10^-15 of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cost(u128);

impl Cost {
    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn of(tokens: u64, price: Price) -> Self {
        // At most 2^64 × 10^18, which is less than 2^124.
        Self(u128::from(tokens).saturating_mul(price.0.into()))
    }
}

impl fmt::Display for Cost {
    /// All digits, at least two after the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10u128.pow(15);
        let part = format!("{:0COST_DIGITS$}", self.0 % unit);
        let part = part.trim_end_matches('0');
        f.pad(&format!("{}.{part:0<2}", self.0 / unit))
    }
}

/// Prices of a model's tokens, by the million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelPrices {
    /// Prompt tokens that were computed.
    input: Price,
    /// Prompt tokens out of the cache; as `input` if not given.
    cached_input: Option<Price>,
    /// Output tokens, with reasoning.
    output: Price,
}

/// A file of prices.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Name of the currency, for the reader.
    #[serde(default)]
    pub currency: String,
    /// By the client's model name; `*` for all others.
    models: BTreeMap<String, ModelPrices>,
}

impl Prices {
    /// Reads YAML.
    ///
    /// # Errors
    /// If it is not as above.
    pub fn read(yaml: &str) -> Result<Self, ReportError> {
        serde_saphyr::from_str(yaml).map_err(|error| ReportError::Prices(error.to_string()))
    }

    /// What tokens of a model cost; cached ones are among the input.
    ///
    /// # Errors
    /// If there are tokens and no price.
    pub fn cost(
        &self,
        model: &str,
        input: u64,
        cached: u64,
        output: u64,
    ) -> Result<Cost, ReportError> {
        if input == 0 && output == 0 {
            return Ok(Cost::default());
        }
        let prices = self.models.get(model).or_else(|| self.models.get("*"));
        let prices = prices.ok_or_else(|| ReportError::NoPrice(model.to_owned()))?;
        let cached = cached.min(input);
        Ok(Cost::of(input - cached, prices.input)
            .plus(Cost::of(cached, prices.cached_input.unwrap_or(prices.input)))
            .plus(Cost::of(output, prices.output)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_exact() {
        let yaml = "currency: USD\nmodels:\n  m: {input: 0.60, cachedInput: 0.15, output: 2.4}\n  \
                    '*': {input: 1, output: 0.000000001}\n";
        let prices = Prices::read(yaml).unwrap();
        assert_eq!(prices.currency, "USD");
        let cases = [
            ("m", 1_000_000, 0, 0, "0.60"),
            ("m", 1_000_000, 1_000_000, 1_000_000, "2.55"),
            ("m", 3, 1, 7, "0.00001815"),
            ("m", 1, 5, 0, "0.00000015"),
            ("x", 1_000_000, 400_000, 0, "1.00"),
            ("x", 0, 0, 1, "0.000000000000001"),
            ("x", u64::MAX, 0, 0, "18446744073709.551615"),
            ("x", 0, 0, 0, "0.00"),
        ];
        for (model, input, cached, output, expected) in cases {
            let cost = prices.cost(model, input, cached, output).unwrap();
            assert_eq!(cost.to_string(), expected, "{model} {input} {cached} {output}");
        }
        // A tenth ten times is one, which it is not in floats.
        let tenth = prices.cost("x", 100_000, 0, 0).unwrap();
        let sum = (0..10).fold(Cost::default(), |sum, _| sum.plus(tenth));
        assert_eq!(sum.to_string(), "1.00");
    }

    #[test]
    fn a_model_without_a_price_is_named() {
        let prices = Prices::read("models: {m: {input: 1, output: 2}}").unwrap();
        assert!(
            matches!(prices.cost("x", 0, 0, 1), Err(ReportError::NoPrice(model)) if model == "x")
        );
        assert_eq!(prices.cost("x", 0, 0, 0).unwrap(), Cost::default(), "nothing to pay");
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for bad in
            ["-1", "1e-3", ".5", "5.", "0.0000000001", "1000000000.1", ".nan", "~", "[1]", "one"]
        {
            let yaml = format!("models: {{m: {{input: {bad}, output: 2}}}}");
            assert!(Prices::read(&yaml).is_err(), "{bad}");
        }
        for bad in ["", "models: {m: {input: 1}}", "models: {m: {input: 1, output: 1, cached: 1}}"]
        {
            assert!(Prices::read(bad).is_err(), "{bad}");
        }
    }
}
