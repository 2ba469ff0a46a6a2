"""Calls to model providers: `base`, the contract and its settings; `http`, `local`, `scripted`, the clients.

Around any of them: `tapes` records and replays, `chaos` injects faults. `recorded` answers from the traces of a run, in
the dialects of `answers`. `shared_state` is no model's: it carries a rollout's state between tool servers and the run.
"""
