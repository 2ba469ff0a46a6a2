"""One eval from its configuration to its summary.

`config`: what the user asked for; `environment`: what all rollouts share; `plan`: which rollouts there are; `rollout`:
one attempt; `scoring`: its rewards; `store`: the run folder; `summary`: its numbers; `evaluate`: the whole.
"""
