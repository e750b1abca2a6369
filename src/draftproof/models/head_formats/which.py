"""Which drafter's head a config.json describes, in our own or a public format; light enough to ask of any folder.

Does not know: tensors, what else the values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from draftproof.models import eagle_config, medusa_config
from draftproof.models.head_formats import eagle3, speculators

_OWN: dict[Any, Literal["eagle", "medusa"]] = {eagle_config.KIND: "eagle", medusa_config.KIND: "medusa"}


def drafter_of(values: Mapping[str, Any]) -> Literal["eagle", "medusa"] | None:
    """None where the values are of no head: a model's, say."""
    if "kind" in values:
        return _OWN.get(str(values["kind"]))
    if "medusa_num_heads" in values or values.get("model_type") == "medusa":
        return "medusa"
    return "eagle" if speculators.is_it(values) or eagle3.is_it(values) else None
