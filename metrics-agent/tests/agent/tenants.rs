//! How tenants stand, over HTTP.

use crate::http;
use crate::run::{Agent, Folder};
use warmroute_shared_state::tenant_status::{FlowStatus, MAX_STATUS_BYTES, TenantStatus};

#[tokio::test]
async fn a_status_is_kept_and_what_is_none_is_refused() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    let flow = FlowStatus {
        priority: Some(3),
        fairness_id: "a".into(),
        waiting: 5,
        ..FlowStatus::default()
    };
    let status = TenantStatus { envoy: 7, flows: vec![flow], ..TenantStatus::default() };
    let cases = [
        (status.to_json(), 204, ""),
        (b"{}".to_vec(), 400, "run filter and agent of the same release"),
        (vec![b' '; MAX_STATUS_BYTES + 1], 413, "larger than 524288 bytes"),
    ];
    for (body, status, text) in cases {
        let answer = http::post_bytes(agent.address, "/v1/tenants", &body).await;
        let seen = String::from_utf8(answer.1).unwrap();
        assert!(answer.0 == status && seen.contains(text), "{} {seen}", answer.0);
    }
    let metrics = http::text(agent.address, "/metrics").await;
    let labels = "{fairness_id=\"a\",priority=\"3\",inference_pool=\"\"}";
    let line = format!("llm_d_epp_flow_control_queue_size{labels} 5");
    assert!(metrics.lines().any(|each| each == line), "{metrics}");
    assert!(http::text(agent.address, "/").await.contains("<h2>Queues</h2>"));
    agent.stop().await.unwrap();
}
