//! Which parser reads a request: the one that claims the longest suffix of its path (llm-d-router,
//! `pkg/epp/handlers`, parser registry).
//!
//! A suffix starts at a segment's border or, as in names of gRPC services, after a dot; llm-d takes it anywhere
//! in a segment.

use super::path::{PathClass, plain};
use super::reply::LocalReply;
use core::fmt;
use warmroute_shared_state::policy::plugin::Parser;

const OPENAI: &[(&str, PathClass)] = &[
    ("chat/completions", PathClass::Chat),
    ("chat/completions/render", PathClass::Chat),
    ("completions", PathClass::Completions),
    ("completions/render", PathClass::Completions),
    ("embeddings", PathClass::Embeddings),
    ("responses", PathClass::Responses),
    ("responses/render", PathClass::Responses),
    ("conversations", PathClass::Conversations),
    ("images/generations", PathClass::Images),
];
const ANTHROPIC: &[(&str, PathClass)] = &[
    ("messages", PathClass::Messages),
    ("messages/render", PathClass::Messages),
    ("messages/count_tokens", PathClass::CountTokens),
];
const VLLM_HTTP: &[(&str, PathClass)] = &[("inference/v1/generate", PathClass::Generate)];
const SGLANG_HTTP: &[(&str, PathClass)] = &[("generate", PathClass::SglangGenerate)];

/// The parsers where a configuration names none.
const DEFAULT: [Parser; 4] =
    [Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough];

/// The paths that a parser claims; none: it takes whatever no other does.
fn claims(parser: Parser) -> &'static [(&'static str, PathClass)] {
    match parser {
        Parser::OpenAi => OPENAI,
        Parser::Anthropic => ANTHROPIC,
        Parser::VllmHttp => VLLM_HTTP,
        Parser::SglangHttp => SGLANG_HTTP,
        Parser::Passthrough => &[],
    }
}

/// The name of the parser for `path`, of `parsers` with their names and the suffixes that they claim, in the
/// order of the configuration. `None`: no parser takes it.
pub fn choose<'p, S: AsRef<str>>(parsers: &'p [(S, Vec<S>)], path: &str) -> Option<&'p str> {
    let claims = parsers.iter().map(|(_, paths)| paths.iter().map(AsRef::as_ref));
    let (index, _) = longest(claims, &plain(path.as_bytes()))?;
    parsers.get(index).map(|(name, _)| name.as_ref())
}

/// Index of the parser, and of its claim that fits; none for the fallback, the first parser without claims. Those
/// behind a fallback do not count.
fn longest<'a, C: ExactSizeIterator<Item = &'a str>>(
    parsers: impl Iterator<Item = C>,
    path: &[u8],
) -> Option<(usize, Option<usize>)> {
    let mut best = None;
    let mut best_length = 0;
    for (parser, claims) in parsers.enumerate() {
        if claims.len() == 0 {
            return best.or(Some((parser, None)));
        }
        for (index, suffix) in claims.enumerate() {
            let suffix = suffix.trim_matches('/').as_bytes();
            let fits = path
                .strip_suffix(suffix)
                .is_some_and(|before| matches!(before.last(), None | Some(b'/' | b'.')));
            if fits && suffix.len() > best_length {
                best_length = suffix.len();
                best = Some((parser, Some(index)));
            }
        }
    }
    best
}

/// The parsers of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserSet(Vec<Parser>);

impl Default for ParserSet {
    /// OpenAI's, Anthropic's, vLLM's, and what is left passes as it is.
    fn default() -> Self {
        Self(DEFAULT.to_vec())
    }
}

impl ParserSet {
    /// Those of a compiled configuration, in its order.
    #[must_use]
    pub fn new(parsers: &[Parser]) -> Self {
        Self(parsers.to_vec())
    }

    /// Classes a request target (`:path`): the longest known suffix wins, whatever stands before it (vendor
    /// prefixes), behind it (`?query`), and however many slashes are written.
    ///
    /// # Errors
    /// If no parser takes it.
    pub fn class(&self, target: &[u8]) -> Result<PathClass, NoParser> {
        let parsers = self.0.iter().map(|parser| claims(*parser));
        let paths = parsers.map(|claims| claims.iter().map(|(suffix, _)| *suffix));
        let (parser, claim) = longest(paths, &plain(target)).ok_or(NoParser)?;
        let claims = self.0.get(parser).map(|parser| claims(*parser)).unwrap_or_default();
        let class = claim.and_then(|index| claims.get(index)).map(|(_, class)| *class);
        Ok(class.unwrap_or(PathClass::Other))
    }
}

/// No configured parser takes a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoParser;

impl fmt::Display for NoParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("No parser is registered for the path of your request.")
    }
}

impl core::error::Error for NoParser {}

impl From<NoParser> for LocalReply {
    fn from(error: NoParser) -> Self {
        Self::error(400, &error.to_string(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn the_longest_suffix_wins() {
            let parsers = [
                ("a", vec!["generate", "v1/x"]),
                ("b", vec!["v1/generate", "generate"]),
                ("c", vec!["v1/x", "Service/Call"]),
            ];
            for (path, expected) in [
                ("/generate", Some("a")),
                ("/v1/generate", Some("b")),
                ("/v1/generate/?q=/generate", Some("b")),
                ("/v1/x", Some("a")),
                ("/pkg.v1.Service/Call", Some("c")),
                ("/MyService/Call", None),
                ("/regenerate", None),
                ("/", None),
                ("", None),
            ] {
                assert_eq!(choose(&parsers, path), expected, "{path}");
            }
        }

        fn a_fallback_takes_the_rest_and_ends_the_list() {
            let parsers = [("a", vec!["x"]), ("rest", vec![]), ("late", vec!["y", "long/x"])];
            for (path, expected) in [("/x", "a"), ("/y", "rest"), ("/long/x", "a"), ("", "rest")] {
                assert_eq!(choose(&parsers, path), Some(expected), "{path}");
            }
            assert_eq!(choose::<&str>(&[], "/x"), None);
        }

        fn a_set_knows_only_its_parsers() {
            let class = |parsers: &[Parser], path: &str| ParserSet::new(parsers).class(path.as_bytes());
            assert_eq!(class(&[Parser::OpenAi], "/v1/completions"), Ok(PathClass::Completions));
            assert_eq!(class(&[Parser::OpenAi], "/v1/messages"), Err(NoParser));
            assert_eq!(class(&[Parser::OpenAi, Parser::Passthrough], "/v1/messages"), Ok(PathClass::Other));
            assert_eq!(class(&[Parser::Passthrough, Parser::OpenAi], "/v1/completions"), Ok(PathClass::Other));
            let both = [Parser::SglangHttp, Parser::VllmHttp];
            assert_eq!(class(&both, "/generate"), Ok(PathClass::SglangGenerate));
            assert_eq!(class(&both, "/inference/v1/generate"), Ok(PathClass::Generate));
            assert_eq!(LocalReply::from(NoParser).status, 400);
        }
    }
}
