//! Prefixes that engines keep apart: adapters, salts.

use crate::bed::{Conversation, ask};
use anyhow::Result;
use e2e::{Setup, Stack};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn adapters_and_salts_never_match_each_other() -> Result<()> {
    let setup = Setup::new(1, 2).precise().simulator(&["--lora", "lora-a", "--lora", "lora-b"]);
    let stack = Stack::start(setup).await?;
    let conversation = Conversation::new(3000, 1);
    let variants: Vec<Value> = vec![
        json!({}),
        json!({"cache_salt": "tenant-a"}),
        json!({"cache_salt": "tenant-b"}),
        json!({"model": "lora-a"}),
        json!({"model": "lora-b"}),
        json!({"model": "lora-a", "cache_salt": "tenant-a"}),
    ];
    for (n, fields) in variants.iter().enumerate() {
        let variant = conversation.with(fields);
        let first = ask(&stack, &format!("first-{n}"), &variant.body()).await?;
        // All the others' prefixes are there, and none of them is its own.
        assert_eq!((first.believed(), first.cached), (0, 0), "{fields}: {:?}", first.log);
        let again = variant.told(&stack, &format!("again-{n}")).await?;
        again.assert_exact();
        assert!(again.believed() > 500, "{fields}: {:?}", again.log);
    }
    Ok(())
}
