"""What speculation would bring on somebody's own prompts: acceptance, costs, the store of runs, the report.

Does not know: the command line; `plan`'s arithmetic lives in `planner`.
"""
