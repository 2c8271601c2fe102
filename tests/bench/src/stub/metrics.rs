//! An idle engine's page of metrics, as long as asked for.

use std::fmt::Write as _;

const SIGNALS: &str = "# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama-70b\"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000000\"} 1.0
";

/// At least `bytes` of exposition, the signals in its middle and histograms around them, as a real vLLM has it.
pub(super) fn page(bytes: usize) -> String {
    let mut page = String::with_capacity(bytes + 4_096);
    let mut family = 0;
    while page.len() < bytes.saturating_sub(SIGNALS.len()) / 2 {
        histogram(&mut page, &mut family);
    }
    page.push_str(SIGNALS);
    while page.len() < bytes {
        histogram(&mut page, &mut family);
    }
    page
}

fn histogram(page: &mut String, family: &mut usize) {
    let name = format!("vllm:family_{family}_seconds");
    *family += 1;
    let labels = "engine=\"0\",model_name=\"llama-70b\"";
    page.push_str(&format!(
        "# HELP {name} Time of one thing or another, in seconds.\n# TYPE {name} histogram\n"
    ));
    for bucket in 0..20 {
        writeln!(
            page,
            "{name}_bucket{{{labels},le=\"{}\"}} {}.0",
            0.001 * f64::from(1 << bucket),
            bucket * 7
        )
        .expect("writing to a string cannot fail");
    }
    page.push_str(&format!("{name}_count{{{labels}}} 133.0\n{name}_sum{{{labels}}} 1.5\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_signals_once_and_the_length() {
        for bytes in [0, 5_000, 70_000] {
            let page = page(bytes);
            assert!(page.len() >= bytes && page.len() < bytes + 4_000, "{bytes}: {}", page.len());
            assert_eq!(page.matches("# TYPE vllm:num_requests_waiting gauge").count(), 1);
        }
    }
}
