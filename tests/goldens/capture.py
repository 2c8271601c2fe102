#!/usr/bin/env python3
"""Captures what a real vLLM renders for our conversations, and writes answers.json beside this file.

    capture.py <path of the `vllm` command> [model ...]      (without names: all of MODELS)

It starts vLLM's render server (no engine, no GPU) for each model in turn on 127.0.0.1, sends every body of chat/ and
messages/ to it, maps the token ids it answers to bytes, and keeps their number and xxh3-64, or "refused". No prompt and
no part of a template or tokenizer is kept. Needs `make models`; README.md says how to install vLLM for it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import xxhash

HERE = pathlib.Path(__file__).resolve().parent
MODEL_FOLDERS = HERE.parents[1] / ".tools" / "models"
PORT = 18431
# The model type stands for a tokenizer class where tokenizer_config.json names none of its own; else it is of no matter
# to rendering (but to gpt-oss, whose prompts come from Harmony).
MODELS = {
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen2_5": ("qwen2", "Qwen2ForCausalLM"),
    "llama3": ("llama", "LlamaForCausalLM"),
    "deepseek_v3": ("deepseek_v3", "DeepseekV3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}


def main() -> None:
    vllm, names = sys.argv[1], sys.argv[2:] or MODELS
    path = HERE / "answers.json"
    answers = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        answers[name] = capture(vllm, name)
        path.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def capture(vllm: str, name: str) -> dict:
    tokens = TokenBytes(MODEL_FOLDERS / name)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(name, pathlib.Path(folder))
        server = serve(vllm, name, model)
        try:
            for api, path in (("chat", "/v1/chat/completions/render"), ("messages", "/v1/messages/render")):
                found[api] = {
                    body.stem: ask(path, name, body.read_text(), tokens) for body in sorted((HERE / api).glob("*.json"))
                }
        finally:
            server.terminate()
            server.wait()
    return found


def make_model(name: str, folder: pathlib.Path) -> pathlib.Path:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL_FOLDERS / name / file, folder / file)
    kind, architecture = MODELS[name]
    config = {
        "architectures": [architecture], "model_type": kind, "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 300000,
        "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
        "use_sliding_window": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def serve(vllm: str, name: str, model: pathlib.Path) -> subprocess.Popen:
    environment = dict(
        os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
        VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", VLLM_HOST_IP="127.0.0.1",
    )
    command = [
        vllm, "launch", "render", str(model), "--served-model-name", name, "--host", "127.0.0.1", "--port", str(PORT),
        "--max-model-len", "131072", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    ]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health")
            return server
        except OSError:
            time.sleep(0.5)
    server.kill()
    sys.exit(f"the render server of {name} did not come up")


def ask(path: str, name: str, body: str, tokens: "TokenBytes") -> object:
    # The body's own bytes, with a model in front.
    body = body.replace("{", json.dumps({"model": name})[:-1] + ", ", 1)
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", body.encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as response:
            ids = json.load(response)["token_ids"]
    except urllib.error.HTTPError as error:
        return "refused" if error.code == 400 else f"failed with status {error.code}"
    rendered = b"".join(tokens.of(i) for i in ids)
    return {"bytes": len(rendered), "xxh3": xxhash.xxh3_64_hexdigest(rendered)}


class TokenBytes:
    """The bytes that a token id stands for, from tokenizer.json."""

    def __init__(self, folder: pathlib.Path) -> None:
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        kinds = json.dumps(tokenizer["decoder"])
        text_to_bytes = self.byte_level if '"ByteLevel"' in kinds else self.sentence_piece
        self.printable = printable_bytes()
        self.bytes = {i: text_to_bytes(text) for text, i in tokenizer["model"]["vocab"].items()}
        for token in tokenizer["added_tokens"]:
            # Gemma lists its runs of blanks here, too.
            plain = token["special"] or text_to_bytes == self.byte_level
            self.bytes[token["id"]] = token["content"].encode() if plain else text_to_bytes(token["content"])

    def of(self, token_id: int) -> bytes:
        return self.bytes[token_id]

    def byte_level(self, text: str) -> bytes:
        # A special token among the ordinary ones is written plainly.
        known = all(c in self.printable for c in text)
        return bytes(self.printable[c] for c in text) if known else text.encode()

    def sentence_piece(self, text: str) -> bytes:
        if len(text) == 6 and text.startswith("<0x"):
            return bytes([int(text[3:5], 16)])
        return text.replace("\u2581", " ").encode()


def printable_bytes() -> dict:
    """GPT-2's printable stand-ins for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    for b in range(256):
        if b not in plain:
            table[chr(256 + len(table) - len(plain))] = b
    return table


if __name__ == "__main__":
    main()
