//! Texts of different kinds: bytes per token run from about one to about five.

/// What a text looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Plain English words.
    Words,
    /// German with umlauts, some of them spelled as a letter and a combining mark.
    Umlauts,
    /// Chinese and emoji.
    Chinese,
    /// Code and numbers.
    Code,
}

/// Every style.
pub const ALL: [Style; 4] = [Style::Words, Style::Umlauts, Style::Chinese, Style::Code];

const STYLES: [Style; 8] = [
    Style::Words,
    Style::Words,
    Style::Words,
    Style::Words,
    Style::Words,
    Style::Umlauts,
    Style::Chinese,
    Style::Code,
];

const WORDS: &[&str] = &[
    "account",
    "after",
    "balance",
    "between",
    "budget",
    "carry",
    "change",
    "claim",
    "customer",
    "deliver",
    "detail",
    "engine",
    "entry",
    "field",
    "final",
    "freight",
    "garden",
    "harbour",
    "history",
    "island",
    "keep",
    "language",
    "letter",
    "market",
    "measure",
    "morning",
    "notice",
    "office",
    "order",
    "parcel",
    "period",
    "plan",
    "question",
    "quick",
    "reason",
    "region",
    "report",
    "river",
    "road",
    "school",
    "season",
    "service",
    "shop",
    "station",
    "stone",
    "street",
    "summer",
    "table",
    "ticket",
    "train",
    "travel",
    "value",
    "village",
    "warehouse",
    "water",
    "week",
    "window",
    "winter",
    "yard",
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
];

const UMLAUTS: &[&str] = &[
    "über",
    "Lösung",
    "Größe",
    "Schlüssel",
    "Verfügbarkeit",
    "für",
    "schön",
    "Rückgabe",
    "fällig",
    "u\u{308}ber",
    "mo\u{308}glich",
    "naïve",
    "déjà",
    "coöperate",
    "mañana",
];

const CHINESE: &[&str] = &[
    "路由", "请求", "缓存", "你好", "世界", "模型", "推理", "快", "慢", "🙂", "🚀", "数据", "库存",
    "订单", "。", "，",
];

const CODE: &[&str] = &[
    "fn main() {",
    "}\n",
    "let x = ",
    "0x1f",
    "self.table[",
    "];\n",
    "return",
    "/* note */",
    "42",
    "3.14159",
    "\t",
    "if a != b {",
    "\"text\"",
    "::<u64>()",
    "<div class='x'>",
    "{\"k\": [1, 2]}",
];

impl Style {
    /// One of the styles; plain words are the most frequent.
    pub fn any(random: &mut fastrand::Rng) -> Self {
        random.choice(STYLES).unwrap_or(Self::Words)
    }
}

/// A text of `words` pieces.
pub fn write(random: &mut fastrand::Rng, style: Style, words: usize) -> String {
    let (list, gap) = match style {
        Style::Words => (WORDS, " "),
        Style::Umlauts => (UMLAUTS, " "),
        Style::Chinese => (CHINESE, ""),
        Style::Code => (CODE, " "),
    };
    let mut text = String::new();
    for at in 0..words {
        // A word list of its own would make every text of a style alike to a tokenizer.
        let piece = if random.u8(..) < 40 { random.choice(WORDS) } else { random.choice(list) };
        if at > 0 {
            text.push_str(gap);
        }
        text.push_str(piece.copied().unwrap_or("word"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_differ_in_bytes_per_token() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut ratio = |style| {
            let text = write(&mut random, style, 400);
            text.len() as f64 / engine_sim::count_text_tokens(&text).unwrap() as f64
        };
        let ratios = [Style::Words, Style::Umlauts, Style::Chinese, Style::Code].map(&mut ratio);
        assert!(ratios[0] > 3.0, "{ratios:?}");
        assert!(ratios.iter().any(|&ratio| ratio < 2.2), "{ratios:?}");
    }
}
