"""Where programs run: `base`, the contract; `subprocess`, this host, by way of `programs`, `pipes` and `keeper`."""
