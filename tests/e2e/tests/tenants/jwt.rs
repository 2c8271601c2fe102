//! Tenants by the claims of tokens that Envoy's own `jwt_authn` filter has checked.

use crate::bed::{KEY_A, short, tenants, usage};
use crate::token::{FOREIGN_KEY, ISSUER, KEY, OTHER_ISSUER, checked, payload, signed};
use anyhow::{Context as _, Result};
use e2e::client::{self, Request};
use e2e::prompts::chat;
use e2e::state::arrival;
use e2e::{Setup, Stack};
use serde_json::{Value, json};

/// Where the header variant has the claims.
const PAYLOAD: &str = "x-jwt-payload";

/// A tenant by its key, and two by a claim of their tokens: one of them by a claim deep in the token.
fn documents() -> String {
    let named = |name: &str, claim: &str, value: &str| {
        format!(
            "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: {name}}}\nspec:\n  identity:\n    \
             stripKey: true\n    \
             jwtClaims: {{issuer: \"{ISSUER}\", tenantClaim: {claim}, tenantValue: {value}}}\n"
        )
    };
    tenants("", "")
        + &named("product", "org", "product-team")
        + &named("research", "realm_access.roles", "research")
}

fn anonymous() -> String {
    let kind = "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\n";
    format!("{kind}metadata: {{name: anonymous}}\nspec: {{}}\n")
}

/// With the claims in the filter's metadata, or in the header.
fn setup(documents: &str, header: bool) -> Setup {
    let mut setup = Setup::new(1, 2).document(documents);
    let leaves = if header {
        setup.plugin_config_extra = format!(r#", "jwt_payload_header": "{PAYLOAD}""#);
        ("forward_payload_header", PAYLOAD)
    } else {
        ("payload_in_metadata", "jwt_payload")
    };
    setup.template(move |template| checked(&template, leaves))
}

fn with_token(token: &str) -> Request {
    Request::chat(&chat("Hi", 2)).header("authorization", &format!("Bearer {token}"))
}

/// Claims, and the tenant that they name.
fn known() -> [(Value, &'static str); 4] {
    [
        (json!({"iss": ISSUER, "org": "product-team"}), "product"),
        (json!({"iss": ISSUER, "org": ["others", "product-team"]}), "product"),
        (
            json!({"iss": ISSUER, "realm_access": {"roles": ["x", "research"]}, "gone": null}),
            "research",
        ),
        (
            json!({"iss": ISSUER, "org": "nobody", "realm_access": {"roles": ["research"]}}),
            "research",
        ),
    ]
}

/// Claims that name no tenant, though Envoy finds the token good; and the key that they are signed with.
fn unknown() -> [(Value, &'static [u8]); 5] {
    [
        (json!({"iss": ISSUER, "org": "other-team"}), KEY),
        (json!({"iss": ISSUER, "sub": "product-team"}), KEY),
        (json!({"iss": ISSUER, "org": {"product-team": "product-team"}}), KEY),
        (json!({"iss": ISSUER, "org": ""}), KEY),
        // The claim counts with its issuer only.
        (json!({"iss": OTHER_ISSUER, "org": "product-team"}), FOREIGN_KEY),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_checked_token_names_the_tenant() -> Result<()> {
    for header in [false, true] {
        let stack = Stack::start(setup(&documents(), header)).await?;
        for (at, (claims, tenant)) in known().into_iter().enumerate() {
            let (id, token) = (format!("known-{at}"), signed(KEY, &claims));
            let answer = client::send(stack.listen(), &with_token(&token).id(&id)).await?;
            assert_eq!(answer.status, 200, "header: {header}, {claims}: {}", answer.text());
            let engines = stack.engines().await?;
            let (_, arrived) = arrival(&engines, &id).context("its arrival")?;
            assert_eq!(arrived.header("x-llm-d-inference-fairness-id"), [tenant], "{claims}");
            assert_eq!(arrived.header("authorization"), Vec::<&str>::new(), "a token stays here");
            assert_eq!(stack.access(&id).await?.tenant.as_deref(), Some(tenant), "{claims}");
        }
        for tenant in ["product", "research"] {
            usage(&stack, tenant, |total| total["requests"] == 2).await?;
        }
        // A key goes as before.
        let answer = client::send(stack.listen(), &short(KEY_A, 2).header("x-api-key", "x")).await;
        // To `jwt_authn` whatever follows `Bearer` is a token.
        assert_eq!(answer?.status, 401);
        let by_key = Request::chat(&chat("Hi", 2)).header("x-api-key", KEY_A);
        assert_eq!(client::send(stack.listen(), &by_key).await?.status, 200);
        usage(&stack, "a", |total| total["requests"] == 1).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobodys_token_and_a_forged_one_are_refused() -> Result<()> {
    for header in [false, true] {
        let stack = Stack::start(setup(&documents(), header)).await?;
        for (claims, key) in unknown() {
            let token = signed(key, &claims);
            let refused = client::send(stack.listen(), &with_token(&token)).await?;
            assert_eq!(refused.status, 401, "header: {header}, {claims}");
            assert_eq!(refused.json()["error"]["code"], "invalid_api_key", "{}", refused.text());
            assert!(!refused.text().contains(&token), "{}", refused.text());
        }
        let good = json!({"iss": ISSUER, "org": "product-team"});
        let signature = |token: &str| token.rsplit('.').next().unwrap_or_default().to_owned();
        let other = signed(KEY, &json!({"iss": ISSUER, "org": "other-team"}));
        let moved = signed(KEY, &good).replace(&signature(&signed(KEY, &good)), &signature(&other));
        for (name, token) in [
            ("foreign-key", signed(FOREIGN_KEY, &good)),
            ("moved-signature", moved),
            ("nobodys-issuer", signed(KEY, &json!({"iss": "https://x", "org": "product-team"}))),
            ("expired", signed(KEY, &json!({"iss": ISSUER, "org": "product-team", "exp": 1}))),
        ] {
            let refused = client::send(stack.listen(), &with_token(&token).id(name)).await?;
            assert_eq!(refused.status, 401, "header: {header}, {name}");
            let details = stack.access(name).await?.details.unwrap_or_default();
            assert!(details.starts_with("jwt_authn_access_denied"), "{name}: {details}");
        }
        // What a client says itself that its claims were, with no token or with somebody's.
        let forged = |request: Request| request.header(PAYLOAD, &payload(&good));
        let without = client::send(stack.listen(), &forged(Request::chat(&chat("Hi", 2)))).await?;
        assert_eq!(without.status, 401, "header: {header}");
        let with = forged(with_token(&other));
        assert_eq!(client::send(stack.listen(), &with).await?.status, 401, "header: {header}");
        let arrived: u64 = stack.engines().await?.iter().map(|engine| engine.arrived).sum();
        assert_eq!(arrived, 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_token_that_names_nobody_is_the_anonymous_tenants() -> Result<()> {
    let stack = Stack::start(setup(&(documents() + &anonymous()), false)).await?;
    for (claims, key) in unknown() {
        let answer = client::send(stack.listen(), &with_token(&signed(key, &claims))).await?;
        assert_eq!(answer.status, 200, "{claims}: {}", answer.text());
    }
    let known = signed(KEY, &json!({"iss": ISSUER, "org": "product-team"}));
    assert_eq!(client::send(stack.listen(), &with_token(&known)).await?.status, 200);
    let forged = signed(FOREIGN_KEY, &json!({"iss": ISSUER, "org": "product-team"}));
    assert_eq!(client::send(stack.listen(), &with_token(&forged)).await?.status, 401);
    usage(&stack, "anonymous", |total| total["requests"] == unknown().len() as u64).await?;
    usage(&stack, "product", |total| total["requests"] == 1).await?;
    Ok(())
}
