"""Answers written as a provider would: what one holds (`answer`), one module a dialect, and `writers` of all."""
