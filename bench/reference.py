"""transformers as the reference of texts, in a process of its own: python -m bench.reference FOLDER

`prompt` gives transformers' own token ids of a chat prompt, `generate` its greedy continuation in float32, `logits` its
teacher-forced rows along a text (written to a .npy file: they are too many for a pipe).

The text is plain greedy: nothing ends it and nothing is forbidden, so that each token is the largest logit.

Does not know: draftproof.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.serve import Handler, serve, version


class Reference:
    """Stock transformers in float32."""

    def __init__(self, folder: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._model.generation_config.eos_token_id = None  # a text that goes on behind its end token, as ours does

    def prompt(self, text: str) -> dict[str, Any]:
        """{"ids": int[P]}"""
        message = [{"role": "user", "content": text}]
        ids = self._tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]
        return {"ids": [int(token) for token in ids]}

    @torch.inference_mode()
    def generate(self, ids: Sequence[int], num_tokens: int, path: str | None = None) -> dict[str, Any]:
        """{"ids": int[num_tokens]}; path: where to write the logits [num_tokens, V] that chose them."""
        inputs = torch.tensor([list(ids)])
        out = self._model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=num_tokens,
            do_sample=False,
            output_logits=path is not None,
            return_dict_in_generate=True,
        )
        if path is not None:
            np.save(path, torch.cat(out.logits).numpy())
        return {"ids": out.sequences[0, len(ids) :].tolist()}

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], num_rows: int, path: str) -> dict[str, Any]:
        """Writes float32[num_rows, V]: the rows after the last `num_rows` of the ids, from one forward over all."""
        rows = self._model(input_ids=torch.tensor([list(ids)]), use_cache=False, logits_to_keep=num_rows).logits[0]
        np.save(path, rows.numpy())
        return {}


def main() -> int:
    """Entry of the child process."""
    folder = sys.argv[1]

    def start() -> tuple[Mapping[str, Any], Mapping[str, Handler]]:
        reference = Reference(folder)
        hello = {"versions": {**version("transformers"), **version("torch")}}
        return hello, {name: getattr(reference, name) for name in ("prompt", "generate", "logits")}

    return serve(start)


if __name__ == "__main__":
    sys.exit(main())
