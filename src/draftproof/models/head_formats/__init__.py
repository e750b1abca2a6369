"""Draft heads in the formats of others: read into draftproof's own form, written from it.

Does not know: engines, drafters, training.
"""
