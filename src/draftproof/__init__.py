"""draftproof: speculative decoding you can prove, price and roll out.

from draftproof import LLM, SamplingParams

with LLM("demo", drafter="suffix") as llm:
    output = llm.generate("Write a haiku about rivers.", SamplingParams(max_new_tokens=64), chat=True)[0]
    print(output.text, output.speculation.acceptance)
"""

from draftproof.engine.llm import LLM
from draftproof.engine.outputs import Output, Speculation, StreamChunk, Timing
from draftproof.errors import DraftproofError, EngineError, InputError
from draftproof.types import Draft, SamplingParams, StepItem, TokenLogprobs, chain

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "Draft",
    "DraftproofError",
    "EngineError",
    "InputError",
    "Output",
    "SamplingParams",
    "Speculation",
    "StepItem",
    "StreamChunk",
    "Timing",
    "TokenLogprobs",
    "__version__",
    "chain",
]
