"""The demo's three prompts: one whose answer is mostly a copy, one that quotes, one that talks freely.

They show what speculation depends on: the more of a text is already in the prompt, the more of it can be guessed.
"""

from __future__ import annotations

_FILE = """class Basket:
    def __init__(self):
        self.fruit = {}

    def put(self, name, count):
        self.fruit[name] = self.fruit.get(name, 0) + count

    def take(self, name, count):
        if self.fruit.get(name, 0) < count:
            raise ValueError("not enough fruit")
        self.fruit[name] -= count

    def total(self):
        return sum(self.fruit.values())
"""

_PASSAGE = (
    "The paper mill on the lower river was founded in 1832 by two brothers who had learned the trade in the south. "
    "At first it made paper from rags; from 1869 on it ground spruce wood, which was cheaper and never ran short. "
    "A flood in 1903 carried off the old wheel house, and the owners put in two turbines in its place. "
    "The mill closed in 1981. Since 1994 its drying hall has been a library with 40,000 books."
)

DEMO_PROMPTS: dict[str, str] = {
    "edit": f"Print this file again and then add a method called names:\n```python\n{_FILE}```",
    "passage": f"{_PASSAGE}\n\nQuote every sentence of the passage above that contains a year.",
    "chat": "What should I pack for three days of walking in the mountains, and why?",
}
