"""Other engines as subjects: transformers, openvino-genai, llama-cpp-python, here or in an interpreter of their own.

    sampler = open_peer("transformers", {"model": folder, "lookup": 4})
    sampler = open_peer("openvino-genai", {"model": "model.gguf", "lookup": 4}, python="/their/env/bin/python")

A *peer* is a small class that imports nothing but the standard library and its engine (`peer_*.py`): it takes token ids
and parameters and gives token ids. It runs in this process, or behind a pipe (`certify.worker`), with the same answers.

Does not know: tests.
"""

from draftproof.certify.adapters.registry import PEER_TESTS, PEERS, PeerEntry, open_peer
from draftproof.certify.adapters.sampler import Peer, PeerReference, PeerSampler

__all__ = ["PEERS", "PEER_TESTS", "Peer", "PeerEntry", "PeerReference", "PeerSampler", "open_peer"]
