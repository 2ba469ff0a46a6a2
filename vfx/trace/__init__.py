"""What one rollout said and did.

`graph`: the messages; `record`: the whole trace and its JSON form; `reading`: back from that form.
"""
