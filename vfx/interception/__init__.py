"""The endpoint that every program calls instead of its provider.

`base`: contract and settings. Pure: `session`, one rollout; `retries`, what it may ask again; `prompts`, what it sent
before; `placement`, where rollouts go. The endpoint: `server`, its socket; `app`, its routes, and `access`, who may
call them; `state`, what tool servers read and write; `exchange`, one request, and `document`, its body; `relay`, where
it goes; `call`, one call to the provider, with its `headers`, its `outlet` to the program and its stream's `pulse`;
`rewriting`, the task's intercept hooks. `single`, `static`, `elastic`: the three shapes, over a `fleet` of servers;
`tunnel`: the way in from another host; `memory`: what the allocator keeps.
"""
