"""Secrets by their looks, or by the name that stands before them, in everything that machines print."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.masking import LooksMask, masked_words

KEY = "s3cr3t-Key-0815"
HF = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
MASK = LooksMask(())

WHERE = [
    f"vllm serve m --api-key {KEY} --port 8000",
    f"vllm serve m --api-key={KEY} --port 8000",
    f'ExecStart=/opt/vllm serve m --api-key "{KEY}" --port 8000',
    f"python -m sglang.launch_server --api_key {KEY} --admin-api-key {KEY}",
    f"llama-server --api-key {KEY} --hf-token {HF}",
    f"Environment=HF_TOKEN={HF} VLLM_API_KEY={KEY}",
    f'Environment="OPENAI_API_KEY={KEY}" "HF_HOME=/models"',
    f"non-default args: {{'api_key': ['{KEY}'], 'model': 'm'}}",
    f"server_args=ServerArgs(model_path='m', api_key='{KEY}', port=8000, hf_token=\"{HF}\")",
    f'{{"api_key": "{KEY}", "model": "m"}}',
    f"> Authorization: Bearer {KEY}",
    f"'authorization': 'Bearer {KEY}'",
    f"x-api-key: {KEY}",
    f"https://ann:{KEY}@proxy.example:3128/",
    f"https://{HF}@huggingface.co/m",
    f"GET /v1/models?api_key={KEY}&x=1",
    f"OSError: token {HF} is not valid",
    f"export AWS_SECRET_ACCESS_KEY={KEY}",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345 and AKIAIOSFODNN7EXAMPLE and sk-proj-0123456789abcdef",
]


@pytest.mark.parametrize("text", WHERE)
def test_it_is_gone_and_the_rest_stays(text: str) -> None:
    shown = MASK.text(text)
    for secret in (KEY, HF, "0123456789", "AKIAIOSFODNN7"):
        assert secret not in shown
    assert "***" in shown
    assert MASK.text(shown) == shown, "what is blotted out stays as it is"


@pytest.mark.parametrize(
    "text",
    [
        "--max-num-batched-tokens 8192 --num-speculative-tokens 5 --max-model-len 131072",
        "VLLM_MAX_TOKENS=819200 TOKENIZERS_PARALLELISM=false",
        "'max_tokens': 16, 'eos_token': '</s>', 'pad_token': '<unused-token>'",
        "api_key: env:VLLM_API_KEY",
        "argument --api-key: expected at least one argument",
        "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:24,  2.41s/it]",
        "KeyError: 'model.layers.0.mlp.experts.w2_weight'",
        "GPU KV cache size: 399,104 tokens, key cache dtype fp8",
        "Started server process [4711]; http://127.0.0.1:8000/v1/models",
        "api_key=None, hf_token=None",
        "basic block and bearer of news",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert MASK.text(text) == text


def test_a_command_line_word_by_word() -> None:
    words = ["vllm", "serve", "m", "--api-key", KEY, f"--hf-token={HF}", "--max-tokens", "5", "--token", "12", "--api-key", "--port", "1"]
    shown = ["vllm", "serve", "m", "--api-key", "***", "--hf-token=***", "--max-tokens", "5", "--token", "12", "--api-key", "--port", "1"]
    assert masked_words(words) == shown
    assert MASK({"argv": words}) == {"argv": shown}


def test_a_mapping_by_its_keys() -> None:
    env: dict[str, Any] = {"HF_TOKEN": "short", "DB_PASSWORD": KEY, "NCCL_ALGO": "Ring", "VLLM_API_KEY": "env:KEY", "MAX_TOKENS": "4096"}
    spec = {"engine": {"api_key": "env:KEY", "env": env, "args": {"hf-token": KEY, "max-model-len": 5, "eos_token": "x"}}, "token": "ok"}
    shown = MASK(spec)
    assert shown["engine"]["env"] == env | {"HF_TOKEN": "***", "DB_PASSWORD": "***"}
    assert shown["engine"]["args"] == {"hf-token": "***", "max-model-len": 5, "eos_token": "x"}
    assert (shown["engine"]["api_key"], shown["token"]) == ("env:KEY", "ok")


def test_what_is_learned_later_is_known_from_then_on() -> None:
    mask = LooksMask(["first-secret"])
    assert mask.text("first-secret later-secret") == "*** later-secret"
    mask.learn(["later-secret", "abc"])
    assert mask.text("first-secret later-secret abc") == "*** *** abc"
    assert mask.known("later-secret and hf_AbCdEfGhIjKlMnOpQrStUv") == "*** and hf_AbCdEfGhIjKlMnOpQrStUv", "a model's words are no log"
