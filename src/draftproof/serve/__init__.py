"""The OpenAI-compatible server: one engine thread, two queues, and a rollout that decides who gets speculation.

Does not know: the command line; how a stage is chosen lives in `rollout`.
"""
