"""`draftproof` whose `measure` runs toy models: a script for tests that kill a process, and the parts they need.

The model folder holds a byte tokenizer, a configuration and an empty weight file; the logits are a hash of the text.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

import draftproof.measure.run
from draftproof.cli.main import main
from draftproof.drafters import make
from draftproof.engine.build import Built, DraftModel
from draftproof.engine.options import EngineOptions
from draftproof.engine.step import Engine
from draftproof.kv.ledger import PageLedger
from draftproof.models.source import resolve
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.noise import PhiloxNoise
from draftproof.sched.limits import Limits
from draftproof.sched.policy import FixedGamma
from draftproof.sched.scheduler import BatchScheduler
from draftproof.text.tokenizer import Tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ '<u>' if m['role'] != 'assistant' else '<a>' }}{{ m['content'] }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
MARKS = ("<end>", "<u>", "<a>")
MAX_LEN = 256


def make_folder(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A model folder as far as names, tokenizer and numbers go."""
    folder.mkdir(exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(MARKS))
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>"} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    numbers = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 256, **numbers}))
    shapes = {"model.embed_tokens.weight": [259, 32], "model.layers.0.w": [4, 4], "model.layers.3.w": [2, 4]}
    header = json.dumps({name: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for name, s in shapes.items()})
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    return folder


def build_each(options: Sequence[EngineOptions], report: Any, *, exact_drafts: bool = False) -> list[Built]:
    """Engines over one toy target, as `engine.build.build_each` makes them over a real one."""
    assert exact_drafts
    report("loading the toy")
    folder = resolve(options[0].model).path
    tokenizer = Tokenizer.from_folder(folder)
    pages = (options[0].kv_memory or 1 << 20) // 256
    toy = ToyOptions(max_len=MAX_LEN, num_pages=min(pages, 4096), min_rows=2)
    target = HashTarget(tokenizer.vocab_size, seed=1, window=2, scale=6.0, options=toy)
    ledger = PageLedger(target.num_pages, target.page_size)
    built = []
    for each in options:
        draft = None
        if each.drafter in ("model", "early_exit"):
            jitter = 0.1 * (each.exit_layer or 3)
            second = HashTarget(target.vocab_size, seed=1, window=2, scale=6.0, jitter=jitter, options=toy)
            own = PageLedger(second.num_pages, second.page_size)
            draft = DraftModel(second, own, resolve(each.draft_model or each.model), each.exit_layer, folder)
            drafter = make(each.drafter, target=second, ledger=own, vocab_size=target.vocab_size)
        else:
            drafter = make(each.drafter)
        rows = 64 + each.max_sequences * (2 + (each.gamma or 0))
        limits = Limits(MAX_LEN, each.max_sequences, max_step_rows=rows, chunk_rows=64, min_rows=2)
        scheduler = BatchScheduler(ledger, limits, FixedGamma(each.gamma or 0))
        engine = Engine(target, drafter, scheduler, ledger, PhiloxNoise())
        info = {"model": each.model, "weights": "float64", "backend": "toy", "numerics": "invariant"}
        built.append(Built(engine, tokenizer, ledger, info, folder, draft))
    return built


def slowly(function: Any, seconds: float) -> Any:
    """The function with a pause before it, so that a kill can fall anywhere."""

    def paused(*args: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return function(*args, **named)

    return paused


if __name__ == "__main__":
    draftproof.measure.run.build_each = build_each
    draftproof.measure.run.measure_group = slowly(draftproof.measure.run.measure_group, 0.03)
    sys.exit(main(sys.argv[1:]))
