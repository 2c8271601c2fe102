use super::*;

const IDLE: &str = include_str!("../../../tests/fixtures/vllm_idle.txt");
const UNDER_LOAD: &str = include_str!("../../../tests/fixtures/vllm_under_load.txt");
const TWO_RANKS: &str = include_str!("../../../tests/fixtures/vllm_two_ranks.txt");

fn vllm(text: &str) -> Option<Reading> {
    read(text.as_bytes(), &Mapping::vllm())
}

fn load(text: &str) -> [Option<f32>; 3] {
    let load = vllm(text).unwrap().load;
    [load.waiting, load.running, load.kv_usage]
}

#[test]
fn captured_expositions_are_read() {
    let start = Some(StartTime::Process(1_795_993_458_220));
    let capacity = |reading: &Reading| (reading.block_tokens, reading.kv_blocks);
    let idle = vllm(IDLE).unwrap();
    assert_eq!(load(IDLE), [Some(0.0), Some(0.0), Some(0.0)]);
    assert_eq!((capacity(&idle), idle.start), ((Some(32), Some(160)), start));
    let busy = vllm(UNDER_LOAD).unwrap();
    assert_eq!(load(UNDER_LOAD), [Some(8.0), Some(4.0), Some(0.477_987_4)]);
    assert_eq!((capacity(&busy), busy.start), ((Some(32), Some(160)), start));
    let ranks = vllm(TWO_RANKS).unwrap();
    assert_eq!(load(TWO_RANKS), [Some(2.0), Some(4.0), Some(0.125_786_17)]);
    assert_eq!((capacity(&ranks), ranks.start), ((Some(32), Some(320)), None));
}

#[test]
fn both_names_of_kv_usage_are_known_and_the_new_one_wins() {
    let old = "vllm:gpu_cache_usage_perc 0.25\n";
    let new = "vllm:kv_cache_usage_perc 0.75\n";
    assert_eq!(load(old)[2], Some(0.25));
    assert_eq!(load(new)[2], Some(0.75));
    assert_eq!(load(&format!("{old}{new}"))[2], Some(0.75));
    assert_eq!(load(&format!("{new}{old}"))[2], Some(0.75));
    assert_eq!(load("vllm:num_requests_waiting 1\n")[2], None);
}

#[test]
fn a_signal_that_is_no_number_is_unknown_and_the_others_stay() {
    for bad in ["NaN", "+Inf", "-Inf", "-1", "1e30", "x", ""] {
        let text = format!("vllm:num_requests_waiting {bad}\nvllm:num_requests_running 2\n");
        assert_eq!(load(&text), [None, Some(2.0), None], "{bad}");
    }
    for bad in ["NaN", "+Inf", "45", "-0.5"] {
        let text = format!("vllm:kv_cache_usage_perc {bad}\nvllm:num_requests_running 2\n");
        assert_eq!(load(&text), [None, Some(2.0), None], "{bad}");
    }
    let one_rank = "vllm:num_requests_waiting{engine=\"0\"} 1\n\
                    vllm:num_requests_waiting{engine=\"1\"} NaN\n";
    assert_eq!(load(one_rank)[0], None);
}

#[test]
fn nothing_of_the_engine_is_no_reading() {
    for text in ["", "\n", "# HELP x\n", "<html>500</html>\n", "up 1\n", "vllm:other 1\n"] {
        assert_eq!(vllm(text), None, "{text}");
    }
    // What gzip makes of a page: we never ask for it.
    assert_eq!(
        read(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03+\xcb\xc9\n", &Mapping::vllm()),
        None
    );
    let cut = &UNDER_LOAD[..40];
    assert_eq!(vllm(cut), None);
}

#[test]
fn cache_info_without_numbers_is_unknown() {
    let text = "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"None\"} 1.0\n";
    let reading = vllm(text).unwrap();
    assert_eq!((reading.block_tokens, reading.kv_blocks), (None, None));
}

#[test]
fn a_restart_is_a_start_time_of_the_same_origin_going_forward() {
    use StartTime::{Created, Process};
    let created = "vllm:a_created 20\nvllm:b_created 10.5\nother_created 1\n";
    assert_eq!(vllm(created).unwrap().start, Some(Created(10_500)));
    let both = format!("{created}process_start_time_seconds 5\n");
    assert_eq!(vllm(&both).unwrap().start, Some(Process(5_000)));
    let cases = [
        (Process(1), Process(2), true),
        (Process(2), Process(2), false),
        (Process(2), Process(1), false),
        (Created(1), Created(2), true),
        (Process(1), Created(2), false),
    ];
    for (earlier, now, restarted) in cases {
        assert_eq!(now.is_restart_since(earlier), restarted, "{earlier:?} {now:?}");
    }
    for bad in ["NaN", "-1", "1e300", "0"] {
        let text = format!("process_start_time_seconds {bad}\n");
        assert_eq!(vllm(&text).unwrap().start, None, "{bad}");
    }
}

proptest::proptest! {
    #[test]
    fn a_body_cut_anywhere_says_nothing_false(cut in 0usize..70_000) {
        let whole = vllm(UNDER_LOAD).unwrap();
        let bytes = UNDER_LOAD.as_bytes();
        if let Some(part) = read(&bytes[..cut.min(bytes.len())], &Mapping::vllm()) {
            let same = |a: Option<f32>, b: Option<f32>| a.is_none() || a == b;
            assert!(same(part.load.waiting, whole.load.waiting));
            assert!(same(part.load.running, whole.load.running));
            assert!(same(part.load.kv_usage, whole.load.kv_usage));
        }
    }
}

fn engine(name: &str, text: &str) -> Reading {
    read(text.as_bytes(), &Mapping::built_in(name).unwrap()).unwrap()
}

#[test]
fn every_built_in_engine_is_read() {
    let sglang = "\
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 3.0
sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 4.0
sglang:token_usage{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 0.25
sglang:cache_config_info{num_pages=\"500\",page_size=\"64\"} 1.0
";
    let trtllm = "\
trtllm_num_requests_waiting{engine_type=\"trtllm\"} 3.0
trtllm_num_requests_running{engine_type=\"trtllm\"} 4.0
trtllm_kv_cache_utilization{engine_type=\"trtllm\"} 0.25
trtllm_kv_cache_tokens_per_block{engine_type=\"trtllm\"} 64.0
trtllm_kv_cache_max_blocks{engine_type=\"trtllm\"} 500.0
";
    let triton_trtllm = "\
nv_trt_llm_request_metrics{model=\"m\",request_type=\"context\",version=\"1\"} 9
nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 4
nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\"} 125
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\"} 500
";
    let cases =
        [("sglang", sglang), ("trtllm-serve", trtllm), ("triton-tensorrt-llm", triton_trtllm)];
    for (name, text) in cases {
        let reading = engine(name, text);
        let load = Load { waiting: Some(3.0), running: Some(4.0), kv_usage: Some(0.25) };
        assert_eq!(reading.load, load, "{name}");
        assert_eq!((reading.block_tokens, reading.kv_blocks), (Some(64), Some(500)), "{name}");
        assert_eq!(reading.signals, Signals::default(), "{name}");
        assert!(reading.is_whole, "{name}");
    }
    let triton = "\
nv_inference_pending_request_count{model=\"a\",version=\"1\"} 1
nv_inference_pending_request_count{model=\"b\",version=\"1\"} 2
nv_inference_exec_count{model=\"a\",version=\"1\"} 4
";
    let load = Load { waiting: Some(3.0), running: Some(4.0), kv_usage: None };
    assert_eq!(engine("triton", triton).load, load);
    assert!(engine("triton", triton).is_whole, "it has no KV usage to tell");
    let without = vllm("vllm:num_requests_waiting 1\nvllm:num_requests_running 1\n").unwrap();
    assert!(!without.is_whole);
}

#[test]
fn an_engines_page_read_as_anothers_is_no_reading() {
    let vllm = "vllm:num_requests_waiting 1\nvllm:a_created 5\n";
    for name in ["sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"] {
        assert_eq!(read(vllm.as_bytes(), &Mapping::built_in(name).unwrap()), None, "{name}");
    }
}

#[test]
fn adapters_are_those_of_the_series_with_the_highest_value() {
    let series = |running: &str, waiting: &str, max: &str, value: &str| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"{max}\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"{waiting}\"}} {value}\n"
        )
    };
    let names = |text: &str| -> Vec<String> {
        text.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let told = |active: &str, waiting: &str, max| {
        Some(Adapters { active: names(active), waiting: names(waiting), max })
    };
    let newest = series("a, b", "c,,a", "4", "1.7e9");
    let cases = [
        (newest.clone(), told("a b", "c a", 4)),
        (
            series("x", "", "4", "1.6e9") + &newest + &series("y", "", "4", "1"),
            told("a b", "c a", 4),
        ),
        (series("x", "", "4", "NaN") + &newest, told("a b", "c a", 4)),
        (newest.clone() + &series("", "", "4", "1.8e9"), told("", "", 4)),
        (series("a,a", " ", "1", "1"), told("a", "", 1)),
        ("vllm:lora_requests_info{max_lora=\"2\"} 1\n".to_owned(), told("", "", 2)),
        (series("a", "", "", "1"), None),
        (series("a", "", "many", "1"), None),
        (series("a", "", "2", "NaN"), None),
        ("vllm:num_requests_waiting 1\n".to_owned(), None),
    ];
    for (text, expected) in cases {
        assert_eq!(vllm(&text).unwrap().signals.adapters, expected, "{text}");
    }
}

#[test]
fn adapters_are_bounded() {
    let many: Vec<_> = (0..1000).map(|n| n.to_string()).chain(["x".repeat(300)]).collect();
    let text = format!(
        "vllm:lora_requests_info{{max_lora=\"2\",running_lora_adapters=\"{}\",\
         waiting_lora_adapters=\"{},b\"}} 1\n",
        many.join(","),
        "x".repeat(300),
    );
    let adapters = vllm(&text).unwrap().signals.adapters.unwrap();
    assert_eq!(adapters.active.len(), MAX_SIGNALS);
    assert_eq!(adapters.waiting, ["b"]);
}

#[test]
fn attributes_are_what_the_configuration_asks_for() {
    let selector = |text| super::super::selector::Selector::parse(text).unwrap();
    let mapping = Mapping {
        attributes: vec![
            ("z.depth".into(), selector("depth{tier=gold}")),
            ("a.share".into(), selector("share")),
            ("gone".into(), selector("nothing")),
            ("bad".into(), selector("bad")),
        ],
        ..Mapping::default()
    };
    let text = "depth{tier=\"gold\"} 7\ndepth{tier=\"tin\"} 9\nshare{engine=\"0\"} 0.5\n\
                share{engine=\"1\"} 0.25\nbad 1\nbad{x=\"y\"} +Inf\n";
    let reading = read(text.as_bytes(), &mapping).unwrap();
    assert_eq!(
        reading.signals.attributes,
        [("a.share".to_owned(), 0.375), ("z.depth".to_owned(), 7.0)]
    );
    assert_eq!(reading.load, Load::default());
}

/// Lines that look like an exposition of the families that are read.
fn lines() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let name = prop_oneof![
        Just("vllm:num_requests_waiting"),
        Just("vllm:kv_cache_usage_perc"),
        Just("vllm:lora_requests_info"),
        Just("vllm:cache_config_info"),
        Just("process_start_time_seconds"),
        Just("trtllm_kv_cache_max_blocks"),
        Just("nv_trt_llm_request_metrics"),
    ];
    let line = (name, "[a-z_=\"{},\\\\ ]{0,40}", "[0-9eE.+a-zA-Z-]{0,12}")
        .prop_map(|(name, labels, value)| format!("{name}{labels} {value}\n"));
    proptest::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

/// What is told of an engine is a number that can be one, whatever its page says.
fn plausible(bytes: &[u8]) {
    for name in super::super::mapping::BUILT_IN {
        let Some(reading) = read(bytes, &Mapping::built_in(name).unwrap()) else { continue };
        let Load { waiting, running, kv_usage } = reading.load;
        for count in [waiting, running].into_iter().flatten() {
            assert!((0.0..=1e9).contains(&count), "{count}");
        }
        assert!(kv_usage.is_none_or(|share| (0.0..=1.0).contains(&share)));
        assert!(reading.signals.attributes.iter().all(|(_, value)| value.is_finite()));
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(0u8.., 0..400)) {
        plausible(&bytes);
    }

    #[test]
    fn any_page_is_read(text in lines()) {
        plausible(text.as_bytes());
    }
}
