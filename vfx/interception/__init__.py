"""The endpoint that every program calls instead of its provider.

`base`: contract and settings. Pure: `session`, one rollout; `placement`, where rollouts go. The endpoint: `server`, its
socket; `app`, who may call it and its routes; `exchange`, one request; `relay`, one call to the provider. `single`,
`static`, `elastic`: the three shapes, over a `fleet` of servers; `tunnel`: the way in from another host.
"""
