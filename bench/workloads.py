"""The twelve fixed prompts in three buckets: copy-heavy editing, reading a passage, open chat.

Invariant: they never change; a figure is comparable with an older one because the prompts are the same (held by a
test). Numbered 0..11 through the buckets in order.

Does not know: models, chat templates, who runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

CODE = """class Inventory:
    def __init__(self):
        self.items = {}

    def add_item(self, name, quantity, price):
        if name in self.items:
            self.items[name]["quantity"] += quantity
        else:
            self.items[name] = {"quantity": quantity, "price": price}

    def remove_item(self, name, quantity):
        if name not in self.items:
            raise KeyError(name)
        if self.items[name]["quantity"] < quantity:
            raise ValueError("not enough stock")
        self.items[name]["quantity"] -= quantity

    def total_value(self):
        return sum(item["quantity"] * item["price"] for item in self.items.values())
"""
PASSAGE = (
    "The lighthouse on the northern cape was built in 1871 after three ships were lost in a single winter. "
    "Its lamp burned colza oil until 1904, when the keepers changed to pressurised paraffin. The tower is 31 metres "
    "high and its light can be seen from 22 nautical miles away. In 1958 an electric motor replaced the clockwork "
    "that turned the lens, and the last keeper left in 1987 when the station was automated. The lens itself, a "
    "first-order Fresnel lens made of 1,008 glass prisms, is still in daily use."
)
WORKLOADS: dict[str, tuple[str, ...]] = {
    "edit": (
        f"Repeat this Python file exactly, without any change:\n```python\n{CODE}```",
        f"Rename the class Inventory to Warehouse in this Python file and print the whole file:\n```python\n{CODE}```",
        f"Add a docstring to each method of this class and print the whole file:\n```python\n{CODE}```",
        f"Print this file again and then add a method called list_items:\n```python\n{CODE}```",
    ),
    "passage": (
        f"{PASSAGE}\n\nSummarise the passage above in three sentences.",
        f"{PASSAGE}\n\nQuote every sentence of the passage that contains a year.",
        f"{PASSAGE}\n\nWhen was the station automated, and what happened to the lens?",
        f"Rewrite the following passage as a list of dated facts.\n\n{PASSAGE}",
    ),
    "chat": (
        "Give me some advice for a first day at a new job.",
        "Tell me a short story about a fox who wants to learn to sail.",
        "Why is the sky blue, and why are sunsets red?",
        "What should I think about before I adopt a dog?",
    ),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One of the twelve."""

    index: int
    bucket: str
    text: str


BUCKETS: tuple[str, ...] = tuple(WORKLOADS)
PROMPTS: tuple[Prompt, ...] = tuple(
    Prompt(index, bucket, text)
    for index, (bucket, text) in enumerate((bucket, text) for bucket, texts in WORKLOADS.items() for text in texts)
)


def spread(count: int) -> tuple[Prompt, ...]:
    """The first `count` prompts, taken from the buckets in turn, so that few still touch them all."""
    per_bucket = [[prompt for prompt in PROMPTS if prompt.bucket == bucket] for bucket in BUCKETS]
    return tuple(prompt for turn in zip(*per_bucket, strict=True) for prompt in turn)[:count]
