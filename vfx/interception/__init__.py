"""The endpoint that every program calls instead of its provider.

`base`: contract and settings; `session`: one rollout, pure; `server`: the endpoint itself; `placement`: where rollouts
go, pure; `single`, `static`, `elastic`: the three shapes; `tunnel`: the way in from another host.
"""
