"""Log-probabilities of emitted tokens, from the row that decided each of them.

"raw": log-softmax of the target's untouched row. "processed": log of the law really sampled from, after penalties,
bias, bans, temperature and truncation. At temperature 0 that law is one-hot and its logarithm says nothing, so
"processed" means there: penalties, bias and bans, at temperature 1 and without truncation.

Invariant: computed in float64 from the same rows, for accepted, correction and bonus tokens alike; entries = tokens.
Does not know: how the token was chosen, text.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from draftproof.rules.nodes import Nodes
from draftproof.rules.select import best_ids
from draftproof.rules.warp import Warped, warp
from draftproof.types import SamplingParams, TokenLogprobs, Verdict


def token_logprobs(warped: Warped, token: int, num_top: int) -> TokenLogprobs:
    """Logarithm of a law at `token` and at its num_top best tokens (fewer where the law has fewer), best first."""
    scores = warped.scores.astype(np.float64)
    scores -= np.log(np.exp(scores).sum())
    ids = warped.ids
    own = token if ids is None else int(np.searchsorted(ids, token))
    best = best_ids(scores, num_top) if num_top else np.zeros(0, np.int64)
    names = best if ids is None else ids[best]
    top = tuple(zip(names.tolist(), scores[best].tolist(), strict=True))
    return TokenLogprobs(token, float(scores[own]), top)


def verdict_logprobs(nodes: Nodes, verdict: Verdict, tokens: list[int]) -> tuple[TokenLogprobs, ...]:
    """One entry for each of `tokens`, what the verdict emits up to an ending; empty if none was asked for."""
    params = nodes.item.params
    if params.logprobs is None:
        return ()
    judges = (0, *verdict.path)[: len(tokens)]  # token i was decided by the row of the node before it
    return tuple(
        token_logprobs(_reported(nodes, node, params), token, params.logprobs)
        for node, token in zip(judges, tokens, strict=True)
    )


def _reported(nodes: Nodes, node: int, params: SamplingParams) -> Warped:
    """The law whose logarithms are reported after `node`."""
    untruncated = replace(params, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0)
    if params.logprobs_mode == "raw":
        return warp(nodes.raw(node), untruncated)
    return nodes.warped(node) if params.temperature > 0 else warp(nodes.processed(node), untruncated)
