"""Calls to model providers: `base`, the contract and its settings; `http`, `local`, `scripted`, the clients.

`shared_state` is no model's: it carries the state of a rollout between its tool servers and the run.
"""
