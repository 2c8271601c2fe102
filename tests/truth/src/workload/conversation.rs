//! One conversation: what it sends next, given what it was answered.

use anyhow::Result;
use engine_sim::tokens::template::{self, Message};
use engine_sim::tokens::tools;
use serde_json::{Value, json};

/// Which API it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What a conversation is made of, fixed before the first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its API.
    pub api: Api,
    /// Model or adapter.
    pub model: String,
    /// Cache salt.
    pub salt: Option<String>,
    /// `tools` of a chat.
    pub tools: Option<Value>,
    /// System message, or beginning of the document; shared with others.
    pub system: String,
    /// What the user says, turn by turn, and how long the answer may be.
    pub turns: Vec<(String, usize)>,
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Path of its API.
    pub path: &'static str,
    /// JSON body.
    pub body: Value,
    /// The prompt as ChatML renders it.
    pub rendered: String,
}

/// A conversation on its way.
#[derive(Clone, Debug)]
pub struct Conversation {
    plan: Plan,
    said: Vec<(&'static str, String)>,
    asked: usize,
}

impl Conversation {
    /// One that nothing was said in yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let said = vec![("system", plan.system.clone())];
        Self { plan, said, asked: 0 }
    }

    /// Turns that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.plan.turns.len() - self.asked
    }

    /// The next request; none after the last turn.
    ///
    /// # Errors
    /// When its tools cannot be rendered.
    pub fn ask(&mut self) -> Result<Option<Ask>> {
        let Some((text, answer)) = self.plan.turns.get(self.asked).cloned() else {
            return Ok(None);
        };
        self.asked += 1;
        self.said.push(("user", text));
        let mut body = json!({ "model": self.plan.model, "max_tokens": answer });
        if let Some(salt) = &self.plan.salt {
            body["cache_salt"] = json!(salt);
        }
        let (path, rendered) = match self.plan.api {
            Api::Chat => {
                let messages: Vec<_> = self
                    .said
                    .iter()
                    .map(|(role, content)| json!({ "role": role, "content": content }))
                    .collect();
                body["messages"] = Value::Array(messages);
                let messages: Vec<_> = self
                    .said
                    .iter()
                    .map(|(role, content)| Message::new(*role, content.as_str()))
                    .collect();
                let rendered = match &self.plan.tools {
                    None => template::render(&messages, true),
                    Some(offered) => {
                        body["tools"] = offered.clone();
                        let calls = vec![None; messages.len()];
                        tools::render(&messages, &calls, Some(&offered.to_string()), true)?
                    }
                };
                ("/v1/chat/completions", rendered)
            }
            Api::Completion => {
                let texts: Vec<&str> = self.said.iter().map(|(_, text)| text.as_str()).collect();
                let prompt = texts.join("\n");
                body["prompt"] = json!(prompt);
                ("/v1/completions", prompt)
            }
        };
        Ok(Some(Ask { path, body, rendered }))
    }

    /// Takes in the answer, which the next request will repeat.
    pub fn answered(&mut self, text: String) {
        self.said.push(("assistant", text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(api: Api) -> Plan {
        Plan {
            api,
            model: "m".to_owned(),
            salt: Some("s".to_owned()),
            tools: None,
            system: "sys".to_owned(),
            turns: vec![("one".to_owned(), 4), ("two".to_owned(), 5)],
        }
    }

    #[test]
    fn each_turn_repeats_what_was_said() {
        let mut talk = Conversation::new(plan(Api::Chat));
        let first = talk.ask().unwrap().unwrap();
        talk.answered(" yes".to_owned());
        let second = talk.ask().unwrap().unwrap();
        let opening = first.rendered.strip_suffix("<|im_start|>assistant\n").unwrap();
        let expected = format!(
            "{opening}<|im_start|>assistant\n yes<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(second.rendered, expected);
        assert_eq!(second.body["messages"].as_array().unwrap().len(), 4);
        assert_eq!(
            (&second.body["cache_salt"], &second.body["max_tokens"]),
            (&json!("s"), &json!(5))
        );
        assert_eq!((talk.ask().unwrap(), talk.left()), (None, 0));
    }

    #[test]
    fn a_completion_grows_one_text() {
        let mut talk = Conversation::new(plan(Api::Completion));
        let first = talk.ask().unwrap().unwrap();
        talk.answered(" yes".to_owned());
        let second = talk.ask().unwrap().unwrap();
        assert_eq!(
            (first.path, first.body["prompt"].as_str()),
            ("/v1/completions", Some("sys\none"))
        );
        assert_eq!(second.rendered, "sys\none\n yes\ntwo");
    }

    #[test]
    fn tools_are_sent_and_rendered_before_the_system_message() {
        let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {}}}]);
        let mut talk = Conversation::new(Plan { tools: Some(tools.clone()), ..plan(Api::Chat) });
        let ask = talk.ask().unwrap().unwrap();
        assert_eq!(ask.body["tools"], tools);
        assert!(ask.rendered.starts_with("<|im_start|>system\n# Tools\n{"), "{}", ask.rendered);
        assert!(ask.rendered.contains("<|im_end|>\n<|im_start|>system\nsys<|im_end|>"));
    }
}
