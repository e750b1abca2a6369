"""Measurements of draftproof beside its peers, and the proof that its texts are theirs and its own.

    python -m bench.run         tokens per second, engine time, time to first token   -> bench/results/*.json
    python -m bench.equality    texts against transformers and against plain decoding -> bench/results/equality.json

Nothing here is part of the package. `bench.serve` and `bench.peers` run inside the peers' own environments, so they
import the standard library and that one peer only.
"""
