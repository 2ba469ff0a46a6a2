"""Wire formats of model providers, pure.

`base`: the contract; `routes`: the dialects by route. `chat`, `responses`, `anthropic`: one each, `*_stream` its
event stream. `sse`: server-sent events; `fields`: JSON of other people's; `overflow`: refusals of too long a prompt;
`rewrites`: changed messages back into native bodies.
"""
