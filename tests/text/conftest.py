"""Two small tokenizers of the two kinds in use: byte-level BPE (GPT-2, Qwen, Llama 3) and byte fallback (Llama 2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from draftproof.text import Tokenizer as OurTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's a café in Zürich; don't panic!",
    "def add(a, b):\n    return a + b  # numbers: 0 1 2 3 4 5 6 7 8 9\n",
    "<user> says: hello, world! 你好,世界 🙂👩‍🚀 STOP END stop end\n\n",
]
TEMPLATE = """{% for message in messages %}{% if loop.first and message['role'] != 'system' %}\
{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}
    {% if message['role'] == 'bad' %}{{ raise_exception('no such role: bad') }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}
{% if loop.index > 50 %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{% generation %}{{ '<|im_start|>assistant\n' }}{% endgeneration %}{% endif %}
{{ {'b': 1, 'a': '<é>'} | tojson }}{{ eos_token }}"""


def _write(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def _byte_fallback() -> Tokenizer:
    """Llama's pipeline: unknown characters become byte tokens, the first space of a text is dropped again."""
    words = ["▁", "h", "e", "l", "o", "w", "r", "d", "S", "T", "O", "P", "\N{REPLACEMENT CHARACTER}", "é"]
    merges = [("▁", "h"), ("e", "l"), ("S", "T"), ("O", "P"), ("ST", "OP")]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    pieces += [left + right for left, right in merges]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(Regex(" "), "▁")])
    strip = decoders.Strip(content=" ", left=1, right=0)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer with a chat template, as transformers saves one."""
    folder = tmp_path_factory.mktemp("bpe")
    _byte_level().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",  # only the config knows it
        "additional_special_tokens": ["<|extra|>"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 64,
    }
    _write(folder, "tokenizer_config.json", config)
    _write(folder, "config.json", {"model_type": "llama", "eos_token_id": 0})
    _write(folder, "generation_config.json", {"eos_token_id": [2, 0]})
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def fallback_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-fallback tokenizer that puts its BOS before a text."""
    folder = tmp_path_factory.mktemp("fallback")
    _byte_fallback().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", "content": "<s>", "special": True},
        "eos_token": "</s>",
        "add_bos_token": False,  # not asked where there is a tokenizer.json
    }
    _write(folder, "tokenizer_config.json", config)
    return folder


@pytest.fixture(scope="session")
def empty_piece(fallback_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> OurTokenizer:
    """The byte-fallback tokenizer with a piece of no text."""
    folder = tmp_path_factory.mktemp("empty")
    spec = json.loads((fallback_folder / "tokenizer.json").read_text(encoding="utf-8"))
    spec["model"]["vocab"][""] = max(spec["model"]["vocab"].values()) + 1
    _write(folder, "tokenizer.json", spec)
    return OurTokenizer.from_folder(folder)


@pytest.fixture(scope="session")
def bpe(bpe_folder: Path) -> OurTokenizer:
    return OurTokenizer.from_folder(bpe_folder)


@pytest.fixture(scope="session")
def fallback(fallback_folder: Path) -> OurTokenizer:
    return OurTokenizer.from_folder(fallback_folder)
