"""Text and tokens: the tokenizer of a model folder, and the text of an output as it streams."""

from draftproof.text.stream import StopHit, TextDelta, TextStream
from draftproof.text.tokenizer import Tokenizer

__all__ = ["StopHit", "TextDelta", "TextStream", "Tokenizer"]
