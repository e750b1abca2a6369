"""A tiny Hugging Face folder with random weights and a byte tokenizer, and LLMs over it, converted once a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from draftproof import LLM
from draftproof.drafters import DRAFTERS
from draftproof.drafters.eagle import EagleDrafter

TEMPLATE = (
    "{% for m in messages %}{{ '<u>' + m['content'] + '</u>' }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def _tokenizer(folder: Path, extra: list[str]) -> int:
    """256 bytes and the special tokens; returns the vocabulary size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", *extra])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(tokenizer.get_vocab_size(with_added_tokens=True))


def make_folder(folder: Path, *, layers: int = 3, extra: list[str] | None = None, seed: int = 7) -> Path:
    """A Llama of hidden size 32 whose tokens depend on far context."""
    vocab_size = _tokenizer(folder, extra or [])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            initializer_range=0.25,
            bos_token_id=None,
            eos_token_id=vocab_size - 1 - len(extra or []),
        )
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target."""
    return make_folder(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer has one more token."""
    return make_folder(tmp_path_factory.mktemp("other"), extra=["<more>"], layers=1)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of a session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def unsure_heads_draft() -> Iterator[None]:
    """Heads that were never trained are sure of little and would end most chains at once: here they go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EagleDrafter.__init__.__kwdefaults__, "min_path", 0.1)
        patch.setitem(DRAFTERS["cascade"].factory.__kwdefaults__, "min_path", 0.1)
        yield


@pytest.fixture(scope="session")
def llm_of(folder: Path, cache_dir: Path) -> Any:
    """llm_of(**options) -> LLM over the tiny folder; the same one for the same options."""
    made: dict[str, LLM] = {}

    def make(**options: Any) -> LLM:
        options = {"threads": 1, "kv_memory": 1 << 23, "weights": "int8", **options}
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = LLM(folder, cache_dir=cache_dir, **options)
        return made[key]

    yield make
    for llm in made.values():
        llm.close()
