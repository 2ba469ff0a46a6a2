"""Where programs run: `base`, the contract; `subprocess`, processes on this host."""
