//! What is read of requests and responses.

use crate::check::same;
use crate::entry::{Entry, Failure, Fields};
use serde_json::Value;
use warmroute_core::request::parsers;
use warmroute_core::response::ResponseReader;
use warmroute_core::response::model_name::ModelRestorer;

pub(crate) fn parser(entry: &Entry) -> Result<(), Failure> {
    let params = Fields::new(&entry.params, &["parsers"])?;
    let parsers = params.list("parsers")?.iter().map(|parser| {
        let parser = Fields::new(parser, &["name", "paths"])?;
        let paths = parser.list("paths")?.iter();
        let paths = paths.map(|path| path.as_str().unwrap_or_default()).collect();
        Ok((parser.text("name")?, paths))
    });
    let parsers = parsers.collect::<Result<Vec<(&str, Vec<&str>)>, Failure>>()?;
    let chosen = parsers::choose(&parsers, entry.input(&["path"])?.text("path")?);
    same(&chosen.map_or(Value::Null, Value::from), entry.expected(&["parser"])?.get("parser")?)
}

pub(crate) fn model_name(entry: &Entry) -> Result<(), Failure> {
    let params = Fields::new(&entry.params, &["targetModel", "incomingModel"])?;
    let body = entry.input(&["body"])?.text("body")?;
    let (target, incoming) = (params.text("targetModel")?, params.text("incomingModel")?);
    let mut restored = body.as_bytes().to_vec();
    if let Some(mut restorer) = ModelRestorer::new(target, incoming) {
        restored = restorer.feed(body.as_bytes()).unwrap_or(restored);
        restored.extend(restorer.finish());
    }
    let expected = entry.expected(&["body", "mutated"])?;
    same(&String::from_utf8_lossy(&restored).as_ref(), &expected.text("body")?)?;
    same(&(restored != body.as_bytes()), &expected.flag("mutated")?)
}

pub(crate) fn usage(entry: &Entry) -> Result<(), Failure> {
    Fields::new(&entry.params, &[])?;
    let body = entry.input(&["body"])?.text("body")?;
    let mut reader = ResponseReader::for_headers(200, Some(b"application/json"), None);
    reader.feed(body.as_bytes());
    let usage = reader.finish(warmroute_core::response::End::Clean).facts.usage;
    let expected = entry.expected(&["prompt", "completion", "total"])?;
    for (key, got) in [
        ("prompt", usage.prompt_tokens),
        ("completion", usage.completion_tokens),
        ("total", usage.total_tokens),
    ] {
        same(&got.map_or(Value::Null, Value::from), expected.get(key)?)?;
    }
    Ok(())
}
