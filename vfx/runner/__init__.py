"""One eval: `config`, what the user asked for; `environment`, what all rollouts share; `plan`, which rollouts there are;
`rollout`, one attempt; `store`, the run folder; `summary`, its numbers; `evaluate`, the whole.
"""
