//! Who is let in as whom.

use super::*;
use crate::request::LocalReply;
use crate::routing::Control;
use serde_json::{Value, json};
use warmroute_shared_state::policy::tenants::{Accounting, JwtClaim, Tenant};

/// The secret of these tests: it must turn up nowhere.
const KEY: &str = "sk-very-secret";

fn tenant(name: &str, keys: &[&str], claim: Option<(&str, &str, &str)>) -> Tenant {
    Tenant {
        name: name.into(),
        key_hashes: keys.iter().map(|key| KeyHash::of(key.as_bytes()).unwrap().0).collect(),
        jwt: claim.map(|(issuer, claim, value)| JwtClaim {
            issuer: issuer.into(),
            claim: claim.into(),
            value: value.into(),
        }),
        strip_key: false,
        fairness_id: format!("{name}-flow"),
        objective: None,
        tier: None,
        limits: Vec::new(),
        accounting: Accounting::Generated,
    }
}

fn tenants() -> Vec<Tenant> {
    vec![
        tenant("a", &[KEY, "k2"], Some(("sso", "org", "product"))),
        tenant("b", &["k3"], Some(("sso", "groups", "batch"))),
        tenant("c", &[], Some(("sso", "org", "research"))),
        tenant("d", &[], Some(("other", "org", "product"))),
        // Their key is a's already.
        tenant("e", &[KEY], None),
    ]
}

fn identify(
    tenants: &[Tenant],
    headers: &[(&str, &[u8])],
    claims: Option<Value>,
) -> Result<String, Unknown> {
    let header =
        |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let claims = claims.map(|claims| Claims::from_json(claims.to_string().as_bytes()).unwrap());
    let tenant = TenantIndex::new(tenants).identify(header, || claims)?;
    Ok(tenants[tenant].name.clone())
}

crate::tests! {
    fn sha256_is_that_of_fips_180() {
        let hex = |key: &[u8]| KeyHash::of(key).unwrap().0.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        assert_eq!((KeyHash::of(b""), KeyHash::of(&[b'k'; 4097])), (None, None));
    }

    fn keys_are_known_in_either_header() {
        let of = |headers: &[(&str, &[u8])]| identify(&tenants(), headers, None);
        let a = Ok("a".to_owned());
        for authorization in ["Bearer sk-very-secret", "bearer sk-very-secret", "BEARER   sk-very-secret ", " Bearer\tk2"] {
            assert_eq!(of(&[("authorization", authorization.as_bytes())]), a, "{authorization}");
        }
        assert_eq!(of(&[("x-api-key", b" k2 ")]), a);
        // The one that is known counts; of two that are, the bearer's.
        assert_eq!(of(&[("authorization", b"Bearer nobodys"), ("x-api-key", b"k2")]), a);
        assert_eq!(of(&[("authorization", b"Bearer k2"), ("x-api-key", b"k3")]), a);
    }

    fn what_is_no_known_key_lets_nobody_in() {
        let long = [b"Bearer ".as_slice(), &[b'k'; 64 << 10]].concat();
        let cases: [&[u8]; 11] = [
            b"Bearer", b"Bearer ", b"bearer\t", b"", b"sk-very-secret", b"Basic sk-very-secret", b"Bearersk-very-secret",
            b"Bearer sk-very-secre", b"Bearer \xff\x00", "Bearer é".as_bytes(), &long,
        ];
        for value in cases {
            for name in ["authorization", "x-api-key"] {
                if (name, value) != ("x-api-key", b"sk-very-secret".as_slice()) {
                    assert_eq!(identify(&tenants(), &[(name, value)], None), Err(Unknown::Wrong), "{value:?}");
                }
            }
        }
        assert_eq!(identify(&tenants(), &[], None), Err(Unknown::Missing));
        assert_eq!(identify(&[], &[("x-api-key", b"k2")], None), Err(Unknown::Wrong));
    }

    fn claims_name_a_tenant_by_issuer_name_and_value() {
        for (claims, expected) in [
            (json!({"iss": "sso", "org": "product"}), Some("a")),
            (json!({"iss": "other", "org": "product"}), Some("d")),
            (json!({"iss": "sso", "org": ["x", "research"]}), Some("c")),
            (json!({"iss": "sso", "groups": ["batch"], "org": "research"}), Some("b")),
            (json!({"iss": "sso", "org": "production"}), None),
            (json!({"iss": "sso", "groups": "product"}), None),
            (json!({"iss": "evil", "org": "product"}), None),
            (json!({"org": "product"}), None),
        ] {
            let expected = expected.map(str::to_owned).ok_or(Unknown::Wrong);
            assert_eq!(identify(&tenants(), &[], Some(claims.clone())), expected, "{claims}");
        }
        // A token in `authorization` is no key, and does no harm; a key counts before claims.
        let product = json!({"iss": "sso", "org": "research"});
        let token: [(&str, &[u8]); 1] = [("authorization", b"Bearer eyJhbGciOi.eyJpc3MiOi.c2ln")];
        assert_eq!(identify(&tenants(), &token, Some(product.clone())).unwrap(), "c");
        assert_eq!(identify(&tenants(), &[("x-api-key", b"k3")], Some(product)).unwrap(), "b");
    }

    fn claims_of_dynamic_metadata_name_a_tenant() {
        let index = TenantIndex::new(&tenants());
        let of = |issuer: &'static str, org: &'static str| {
            let property = move |path: &[&str]| match path {
                ["iss"] => Some(issuer.into()),
                ["org"] => Some(org.into()),
                _ => None,
            };
            let claims = Claims::from_properties(property, |issuer| index.claim_names(issuer).collect::<Vec<_>>());
            index.identify(|_| None, || claims)
        };
        assert_eq!((of("sso", "research"), of("other", "product")), (Ok(2), Ok(3)));
        assert_eq!((of("sso", "nobody"), of("evil", "product")), (Err(Unknown::Wrong), Err(Unknown::Wrong)));
    }

    fn claims_are_looked_for_only_if_a_tenant_has_one() {
        let index = TenantIndex::new(&[tenant("a", &["k"], None)]);
        assert!(!index.reads_claims());
        let found = index.identify(|_| None, || unreachable!("claims can't say anything"));
        assert_eq!(found, Err(Unknown::Missing));
    }

    fn the_anonymous_tenant_is_everybody_else() {
        let mut all = tenants();
        all.push(tenant(ANONYMOUS, &[], None));
        let anonymous = Ok(ANONYMOUS.to_owned());
        assert_eq!(identify(&all, &[], None), anonymous);
        assert_eq!(identify(&all, &[("x-api-key", b"nobodys")], None), anonymous);
        assert_eq!(identify(&all, &[], Some(json!({"iss": "sso"}))), anonymous);
        assert_eq!(identify(&all, &[("x-api-key", b"k3")], None).unwrap(), "b");
    }

    fn thousands_of_tenants_are_told_apart() {
        let all: Vec<_> = (0..10_000).map(|n| tenant(&n.to_string(), &[&format!("key-{n}")], None)).collect();
        let index = TenantIndex::new(&all);
        for n in [0, 1, 4_999, 9_999] {
            let key = format!("key-{n}");
            let found = index.identify(|name| (name == "x-api-key").then_some(key.as_bytes()), || None);
            assert_eq!(found, Ok(n));
        }
    }

    fn the_tenants_word_replaces_the_clients() {
        let plain = tenant("a", &[], None);
        assert_eq!(Effects::of(&plain), Effects {
            set: vec![("x-llm-d-inference-fairness-id", "a-flow".into())],
            remove: vec![TIER],
        });
        let tenant = Tenant { objective: Some("premium".into()), tier: Some("gold".into()), strip_key: true, ..plain.clone() };
        assert_eq!(Effects::of(&tenant), Effects {
            set: vec![
                ("x-llm-d-inference-fairness-id", "a-flow".into()),
                ("x-llm-d-inference-objective", "premium".into()),
                (TIER, "gold".into()),
            ],
            remove: vec!["authorization", "x-api-key"],
        });
        let sent = Control { fairness_id: Some("x".into()), objective: Some("y".into()), slo_ttft_ms: Some(1), ..Control::default() };
        let mut control = sent.clone();
        Effects::control(&plain, &mut control);
        assert_eq!(control, Control { fairness_id: Some("a-flow".into()), objective: None, ..sent });
    }

    fn nobody_reads_401_and_no_key_is_shown_anywhere() {
        for unknown in [Unknown::Missing, Unknown::Wrong] {
            let reply = LocalReply::from(unknown);
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(reply.status, 401);
            assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!("invalid_request_error"), &json!("invalid_api_key")));
            assert!(reply.header_pairs().contains(&("www-authenticate", "Bearer")));
        }
        let index = TenantIndex::new(&tenants());
        let claims = Claims::from_json(format!(r#"{{"org":"{KEY}"}}"#).as_bytes()).unwrap();
        let shown = format!("{index:?} {:?} {claims:?}", KeyHash::of(KEY.as_bytes()));
        assert!(!shown.contains("secret") && !shown.contains("product"), "{shown}");
        assert_eq!(shown, "TenantIndex(3 keys, 2 issuers) Some(KeyHash(…)) Claims(1)");
    }
}
