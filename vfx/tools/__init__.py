"""Tools over MCP: the processes that serve toolsets, and the side of the run that starts, watches and ends them.

`host` is the process that servers are forked from, `serve` what such a server does; both run apart from vfx. `server`
starts one of them, `shared` keeps those of all rollouts up, `external` asks servers that run elsewhere, and `servers`
is what the runner uses: everything that a run's rollouts have as tools.
"""
