"""One policy, written for several serving engines, with the list of what each can't express.

Does not know: models, runs on disk, measuring.
"""
