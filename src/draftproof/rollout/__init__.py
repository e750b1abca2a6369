"""Turning speculation on step by step, per bucket, and taking it back: a pure state machine, its store, its gates.

Does not know: servers, engines, models.
"""
