//! Compiling a model's template, and rendering requests with it.

mod arguments;

use self::arguments::{arguments, documents_value};
use crate::audit::{Audited, audit};
use crate::clock::{SECONDS_OF_A_DAY, shows_only_days};
use crate::content_format::{ContentFormat, detect};
use crate::continuation::Continuation;
use crate::conversation::{Turn, messages_value, turns};
use crate::environment::{
    CLOCK, Raised, environment, syntax, unknown_name, without_generation_tags,
};
use crate::error::{RenderError, TemplateError};
use crate::plans::{MOST_PLANNED, Plans, Shape};
use crate::probes::{disabled_thinking_effort, needs_system_first};
use crate::request::ChatRequest;
use crate::shortening::{MARK, shorten};
use crate::tools::tools_value;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::borrow::Cow;
use std::io;
use std::sync::Mutex;

/// A model's template as its files give it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateSource {
    /// `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`.
    pub text: String,
    /// The special tokens of `tokenizer_config.json` by name (`bos_token`, …), those that are null left out.
    pub special_tokens: Vec<(String, String)>,
}

/// A compiled template.
pub struct Template {
    environment: Environment<'static>,
    special_tokens: Vec<(String, Value)>,
    format: ContentFormat,
    /// What the quick ways must look out for, where they are open.
    audited: Option<Audited>,
    /// Prompts of the shapes that were seen. Whoever finds it taken goes without.
    plans: Mutex<Plans>,
    knows_developer: bool,
    merges_inline_system: bool,
    disabled_thinking_effort: &'static str,
}

/// The template's name inside its environment.
const NAME: &str = "chat";

/// The most messages. What a template does to a list (find its last item, say) costs no steps that are counted, and
/// it may do it for every message.
const MAX_MESSAGES: usize = 4096;

/// The quick way is taken if it leaves out as many bytes at least.
const WORTH_SHORTENING: usize = 4096;

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// It is Harmony's, or no template that can be run here.
    pub fn compile(source: &TemplateSource) -> Result<Self, TemplateError> {
        if source.text.contains("<|channel|>") {
            return Err(TemplateError::Harmony);
        }
        let text = without_generation_tags(&source.text);
        let mut environment = environment(false).map_err(|error| syntax_error(&error))?;
        let (format, mut audited) = inspect(&text)?;
        let mut texts = source.special_tokens.iter().map(|(_, token)| token).chain([&source.text]);
        if texts.any(|text| text.contains(MARK)) {
            audited = None;
        }
        if let Some(audited) = audited.as_mut().filter(|_| !shows_only_days(&text)) {
            // The same shape is another prompt at another time.
            audited.uses = None;
        }
        environment
            .add_template_owned(NAME, text.clone().into_owned())
            .map_err(|error| syntax_error(&error))?;
        let special_tokens = source.special_tokens.iter();
        let mut template = Self {
            environment,
            special_tokens: special_tokens
                .map(|(name, token)| (name.clone(), Value::from(token.as_str())))
                .collect(),
            format,
            audited,
            plans: Mutex::default(),
            knows_developer: ["\"developer\"", "'developer'"]
                .iter()
                .any(|name| source.text.contains(name)),
            // Jinja without `transformers`' additions does not know the tags taken out above.
            merges_inline_system: matches!(text, Cow::Owned(_)) || needs_system_first(&text),
            disabled_thinking_effort: "none",
        };
        template.disabled_thinking_effort = disabled_thinking_effort(&template);
        Ok(template)
    }

    /// Whether vLLM's `/v1/messages` merges system messages within a conversation into the first one, because the
    /// template takes none elsewhere.
    #[must_use]
    pub fn merges_inline_system(&self) -> bool {
        self.merges_inline_system
    }

    /// The `reasoning_effort` that stands for Anthropic's `thinking: {"type": "disabled"}`.
    #[must_use]
    pub fn disabled_thinking_effort(&self) -> &'static str {
        self.disabled_thinking_effort
    }

    /// Renders a chat: calls `out` with the prompt's bytes in order, in pieces, only if all went well.
    ///
    /// `clock_unix_s` is what `strftime_now` shows. Of a longer prompt the first `limit` bytes are given out. Pieces
    /// after the first begin with ASCII, so each can be normalised by itself.
    ///
    /// # Errors
    /// What cannot be rendered exactly as the engine would; see [`RenderError`].
    pub fn render_chat(
        &self,
        request: &ChatRequest<'_>,
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RenderError> {
        let turns = self.turns(request)?;
        if self.by_shape(request, &turns, clock_unix_s, limit, out)
            || self.shortened(request, &turns, clock_unix_s, limit, out)
        {
            return Ok(());
        }
        out(self.whole(request, turns, clock_unix_s, limit)?.as_bytes());
        Ok(())
    }

    /// The same, always the plain way: what the quick ones are held to.
    ///
    /// # Errors
    /// As [`render_chat`](Self::render_chat).
    #[doc(hidden)]
    pub fn render_whole(
        &self,
        request: &ChatRequest<'_>,
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RenderError> {
        let prompt = self.render(request, clock_unix_s, limit)?;
        out(prompt.as_bytes());
        Ok(())
    }

    /// The same by the conversation's shape; whether that is open.
    #[doc(hidden)]
    pub fn render_planned(
        &self,
        request: &ChatRequest<'_>,
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let turns = self.turns(request);
        turns.is_ok_and(|turns| self.by_shape(request, &turns, clock_unix_s, limit, out))
    }

    /// The same by way of shortened texts; whether that is open.
    #[doc(hidden)]
    pub fn render_shortened(
        &self,
        request: &ChatRequest<'_>,
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let turns = self.turns(request);
        turns.is_ok_and(|turns| self.shortened(request, &turns, clock_unix_s, limit, out))
    }

    pub(crate) fn render(
        &self,
        request: &ChatRequest<'_>,
        clock_unix_s: u64,
        limit: usize,
    ) -> Result<String, RenderError> {
        self.whole(request, self.turns(request)?, clock_unix_s, limit)
    }

    /// Renders by what is kept of the conversation's shape, or keeps it, if that is open. If not, or if anything fails,
    /// nothing was given out.
    fn by_shape(
        &self,
        request: &ChatRequest<'_>,
        turns: &[Turn<'_>],
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let Some(Audited { needles, uses: Some(uses) }) = &self.audited else { return false };
        let day = clock_unix_s / SECONDS_OF_A_DAY;
        let Some(shape) = Shape::of(request, turns, uses, needles, self.takes_parts(), day) else {
            return false;
        };
        let Ok(mut plans) = self.plans.try_lock() else { return false };
        if let Some(given) = plans.give(&shape, limit, out) {
            return given;
        }
        let turns = shape.with_stand_ins(turns);
        let prompt = self
            .context(request, turns, clock_unix_s)
            .and_then(|context| self.run(context, MOST_PLANNED.saturating_add(1)));
        plans.keep(shape, prompt.as_deref().ok(), limit, out)
    }

    /// Renders by way of shortened texts, if that is open and worth it. If not, or if anything fails, nothing was
    /// given out.
    fn shortened(
        &self,
        request: &ChatRequest<'_>,
        turns: &[Turn<'_>],
        clock_unix_s: u64,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let Some(Audited { needles, .. }) = &self.audited else { return false };
        if request.continue_final_message == Some(true) {
            return false;
        }
        // Most chats are short.
        let texts = request.messages.iter().map(|message| message.content.text_bytes());
        if texts.fold(0, usize::saturating_add) < WORTH_SHORTENING {
            return false;
        }
        let mut turns = turns.to_vec();
        let Some(removed) = shorten(&mut turns, needles, self.takes_parts()) else { return false };
        if removed.bytes < WORTH_SHORTENING {
            return false;
        }
        let prompt = self.context(request, turns, clock_unix_s).and_then(|c| self.run(c, limit));
        prompt.is_ok_and(|prompt| removed.put_into(&prompt, limit, out).is_ok())
    }

    fn whole(
        &self,
        request: &ChatRequest<'_>,
        mut turns: Vec<Turn<'_>>,
        clock_unix_s: u64,
        limit: usize,
    ) -> Result<String, RenderError> {
        let adds_prompt = request.add_generation_prompt.unwrap_or(true);
        let continues = request.continue_final_message.unwrap_or(false);
        if continues && adds_prompt {
            return Err(RenderError::Refused("continues a message and adds a generation prompt"));
        }
        let continuation = if continues { Some(Continuation::mark(&mut turns)?) } else { None };
        let mut prompt = self.run(self.context(request, turns, clock_unix_s)?, limit)?;
        if let Some(continuation) = continuation {
            continuation.cut(&mut prompt)?;
        }
        Ok(prompt)
    }

    fn takes_parts(&self) -> bool {
        self.format == ContentFormat::Parts
    }

    fn turns<'a>(&self, request: &ChatRequest<'a>) -> Result<Vec<Turn<'a>>, RenderError> {
        if request.messages.len() > MAX_MESSAGES {
            return Err(RenderError::Unsupported("too many messages"));
        }
        turns(request, self.format, self.knows_developer)
    }

    /// All that the template sees.
    fn context(
        &self,
        request: &ChatRequest<'_>,
        turns: Vec<Turn<'_>>,
        clock_unix_s: u64,
    ) -> Result<Vec<(String, Value)>, RenderError> {
        let mut context = arguments(&self.special_tokens, request)?;
        context.push(("messages".into(), messages_value(turns)?));
        context.push(("tools".into(), request.tools.map_or(Ok(Value::from(())), tools_value)?));
        context.push(("documents".into(), documents_value(request.documents)?));
        let adds_prompt = request.add_generation_prompt.unwrap_or(true);
        context.push(("add_generation_prompt".into(), Value::from(adds_prompt)));
        context.push((CLOCK.into(), Value::from(clock_unix_s)));
        Ok(context)
    }

    fn run(&self, context: Vec<(String, Value)>, limit: usize) -> Result<String, RenderError> {
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error))?;
        let mut prompt = Limited { bytes: Vec::new(), limit };
        template
            .render_captured_to(Value::from_pairs(context), &mut prompt)
            .map_err(|error| failure(&error))?;
        // The cut may have gone through a character.
        let whole = core::str::from_utf8(&prompt.bytes).map_or_else(|e| e.valid_up_to(), str::len);
        prompt.bytes.truncate(whole);
        String::from_utf8(prompt.bytes)
            .map_err(|_| RenderError::Failed { line: 0, kind: "not UTF-8" })
    }
}

/// Looks through the syntax tree: whether all it names is there, how it takes contents, and whether the quick way is
/// open.
fn inspect(text: &str) -> Result<(ContentFormat, Option<Audited>), TemplateError> {
    let tree = syntax().and_then(|syntax| minijinja::machinery::parse(text, NAME, syntax));
    let tree = tree.map_err(|error| syntax_error(&error))?;
    let tree = core::slice::from_ref(&tree);
    if let Some((name, line)) = unknown_name(tree) {
        let reason = format!("the filter or test '{name}' is not built in");
        return Err(TemplateError::Syntax { line, reason });
    }
    let format = detect(tree);
    Ok((format, audit(tree, format)))
}

fn syntax_error(error: &Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(0), reason: error.to_string() }
}

fn failure(error: &Error) -> RenderError {
    let mut source: Option<&(dyn core::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<Raised>() {
            return RenderError::Raised;
        }
        source = error.source();
    }
    let line = error.line().unwrap_or(0);
    let kind = match error.kind() {
        ErrorKind::OutOfFuel => return RenderError::TooMuchWork,
        ErrorKind::InvalidOperation => "invalid operation",
        ErrorKind::UnknownFilter => "unknown filter",
        ErrorKind::UnknownTest => "unknown test",
        ErrorKind::UnknownFunction => "unknown function",
        ErrorKind::UnknownMethod => "unknown method",
        ErrorKind::UndefinedError => "undefined value",
        ErrorKind::BadSerialization => "a value without a JSON form",
        _ => "failed",
    };
    RenderError::Failed { line, kind }
}

/// Keeps the first `limit` bytes. The rest is rendered, too: an exception in it counts.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
