//! Two tenants with a key each, and what the agent's ledger says of them.

use anyhow::{Context as _, Result};
use e2e::client::Request;
use e2e::prompts::fresh_text;
use e2e::{MODEL, Stack};
use serde_json::{Value, json};

/// Tenant `a`'s key.
pub(crate) const KEY_A: &str = "sk-tenant-a-secret";
/// Tenant `b`'s key.
pub(crate) const KEY_B: &str = "sk-tenant-b-secret";

const HASH_A: &str = "a103784af7dad8eb12b288439e45a31fab09b4e001395940a78c61902d4499d6";
const HASH_B: &str = "85dd637616d382893e32978911b34247bc160131c3490169051bf673d232cae4";

/// A `TenantQuota` with these further fields of `spec`, each on a line of its own that begins with two spaces.
fn tenant(name: &str, hash: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: {name}}}\nspec:\n  \
         identity: {{apiKeyHashes: [{hash}], stripKey: true}}\n{spec}\n"
    )
}

/// Both tenants, with these further fields of `spec`.
pub(crate) fn tenants(of_a: &str, of_b: &str) -> String {
    tenant("a", HASH_A, of_a) + &tenant("b", HASH_B, of_b)
}

/// A chat of this body with this key.
pub(crate) fn keyed(key: &str, body: &Value) -> Request {
    Request::chat(body).header("authorization", &format!("Bearer {key}"))
}

/// A short chat, answered with `reply_tokens` tokens.
pub(crate) fn short(key: &str, reply_tokens: u32) -> Request {
    keyed(
        key,
        &json!({
            "model": MODEL,
            "max_tokens": reply_tokens,
            "messages": [{"role": "user", "content": fresh_text(20)}],
        }),
    )
}

/// Totals of the ledger for a tenant, as `GET /v1/usage` has them, once they are what `complete` wants.
pub(crate) async fn usage(
    stack: &Stack,
    tenant: &str,
    complete: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let agent = stack.agent.as_ref().context("no agent")?.address;
    let path = format!("/v1/usage?tenant={tenant}");
    let found = async || {
        let answer = warmroute_demo::processes::get(agent, &path).await.ok()?;
        let total = answer.json()["total"].clone();
        complete(&total).then_some(total)
    };
    stack.until(&format!("the usage of tenant {tenant}"), found).await
}
