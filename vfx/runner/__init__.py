"""One eval from its configuration to its summary.

`config`: what the user asked for; `environment`: what all rollouts share; `plan`: which rollouts there are; `rollout`:
one attempt; `scoring`: its rewards; `episode`: the rollouts of a task together; `store`: the run folder; `resume`: what
is in it already; `digest`: what may differ then; `summary`: its numbers; `evaluate`: the whole.
"""
