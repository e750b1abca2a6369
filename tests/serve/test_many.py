"""Many clients at once, some of which leave or send nonsense: no answer is lost, mixed up or changed, no page leaks."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import aclosing

import httpx
import pytest

from draftproof import SamplingParams

SECONDS, STREAMS = 8.0, 32
PROMPTS = [f"{word} {index}" for index, word in enumerate(["aaaa", "abab", "hello", "日本", "x y z", "123123"] * 3)]
NONSENSE = [b"{", b"[]", b'{"prompt": "a", "tools": 1}', b'{"prompt": [99999]}', b'{"prompt": "a", "n": 999}']


async def _read(http: httpx.AsyncClient, body: dict, leave_after: int | None) -> str | None:
    """The joined text, or None for a client that left."""
    pieces: list[str] = []
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        if response.status_code != 200:
            await response.aread()
            response.raise_for_status()
        async with aclosing(response.aiter_lines()) as lines:
            async for line in lines:
                if line == "data: [DONE]":
                    return "".join(pieces)
                if line:
                    pieces.append(json.loads(line[6:])["choices"][0]["text"])
                if leave_after is not None and len(pieces) > leave_after:
                    return None
    raise AssertionError("the stream ended without [DONE]")


async def _client(number: int, url: str, truth: dict[str, str], seen: Counter[str]) -> None:
    rng = random.Random(number)
    end = time.monotonic() + SECONDS
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        while time.monotonic() < end:
            prompt, kind = rng.choice(PROMPTS), rng.random()
            wish = {"drafter": rng.choice(["suffix", "ngram", "early_exit", "none"])}
            body = {
                "prompt": prompt,
                "max_tokens": 40,
                "temperature": 0,
                "bucket": f"b{number % 4}",
                "speculation": wish,
            }
            if kind < 0.15:
                json_type = {"Content-Type": "application/json"}
                refused = await http.post("/v1/completions", content=rng.choice(NONSENSE), headers=json_type)
                seen[f"refused {refused.status_code}"] += 1
            elif kind < 0.3:
                left = await _read(http, body, rng.randrange(4))
                seen["left" if left is None else "ended"] += 1
            elif kind < 0.4:
                answer = (await http.post("/v1/completions", json=body)).json()
                seen["mismatch" if answer["choices"][0]["text"] != truth[prompt] else "whole"] += 1
            else:
                text = await _read(http, body, None)
                seen["mismatch" if text != truth[prompt] else "streamed"] += 1


@pytest.mark.timeout(240)
def test_every_finished_answer_is_its_solo_run(serve, truth):
    outputs = truth.generate(PROMPTS, SamplingParams(max_new_tokens=40))
    texts = {prompt: output.text for prompt, output in zip(PROMPTS, outputs, strict=True)}
    running = serve()
    seen: Counter[str] = Counter()

    async def all_of_them() -> None:
        await asyncio.gather(*(_client(number, running.url, texts, seen) for number in range(STREAMS)))

    asyncio.run(all_of_them())
    assert seen["mismatch"] == 0
    assert {name for name in seen if name.startswith("refused")} == {"refused 400"}
    assert min(seen["streamed"], seen["whole"], seen["left"], seen["refused 400"]) > 0, seen
    assert not running.lines("a fault of the server")
    assert not running.lines("a step failed")
