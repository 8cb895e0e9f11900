"""A real vLLM on the CPU (tools/serving_env.sh) and a model small enough for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 16_384


@pytest.fixture(scope="session")
def vllm_environment() -> Path:
    """The environment's folder; the tests are skipped where it was not made."""
    folder = Path(os.environ.get("SERVING_VENV", ROOT / ".venv-serving"))
    if not (folder / "bin" / "vllm").is_file():
        pytest.skip("no vLLM environment: make it with 'bash tools/serving_env.sh' (make test-serving does)")
    return folder


@pytest.fixture(scope="session")
def vllm(vllm_environment: Path) -> Path:
    """The real ``vllm`` command."""
    return vllm_environment / "bin" / "vllm"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers whose weights are never loaded, with a word-level tokenizer."""
    folder = tmp_path_factory.mktemp("model") / "tiny-llama"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
    config |= {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": 2048}
    config |= {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(config))
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": text, **special} for text, i in list(words.items())[:3]]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
    }
    tokenizer |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None}
    tokenizer |= {"model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | {"eos_token": "</s>", "model_max_length": 2048})
    )
    return folder


@pytest.fixture(autouse=True)
def small_and_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the CPU backend: one GiB of KV cache, no look-ups on the network."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
