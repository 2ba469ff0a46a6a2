"""Wire formats of model providers, pure: `chat`, OpenAI chat completions; `sse`, server-sent events."""
