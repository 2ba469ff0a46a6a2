"""Calls to model providers: `base`, the contract and its settings; `http`, `local`, `scripted`, the clients."""
