"""Wire formats of model providers, pure.

`chat`: OpenAI chat completions; `chat_stream`: the same, streamed; `sse`: server-sent events.
"""
