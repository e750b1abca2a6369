"""Streams and batches: each prompt with its own parameters in one engine, and a text as it comes.

python examples/stream_and_batch.py
"""

from draftproof import LLM, SamplingParams

with LLM("demo", drafter="suffix") as llm:
    for chunk in llm.stream("Write three short sentences about the sea.", SamplingParams(max_new_tokens=48), chat=True):
        print(chunk.text, end="", flush=True)
    print("\n")
    prompts = ["Name a river.", "Name a mountain.", "Name a city."]
    params = [SamplingParams(temperature=t, seed=7, max_new_tokens=16) for t in (0.0, 0.7, 1.2)]
    for prompt, output in zip(prompts, llm.generate(prompts, params, chat=True), strict=True):
        print(f"{prompt} {output.text!r} ({output.finish_reason}, seed {output.seed})")
