//! An engine that answers at once: what is measured is the way, not the engine.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"llama-70b","choices":[{"index":0,"#,
    r#""message":{"role":"assistant","content":"ok"},"finish_reason":"length"}],"#,
    r#""usage":{"prompt_tokens":55000,"total_tokens":55001,"completion_tokens":1}}"#
);

/// An idle engine with more KV memory than the measurement can fill.
const METRICS: &str = "# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100000\"} 1.0
";

/// Listens on a free port of 127.0.0.1 until the program ends.
pub(super) async fn serve() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // Without it small answers may wait for an acknowledgement.
            let _ = socket.set_nodelay(true);
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(answer));
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let metrics = request.method() == Method::GET;
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let (text, kind) =
        if metrics { (METRICS, "text/plain; version=0.0.4") } else { (ANSWER, "application/json") };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}
