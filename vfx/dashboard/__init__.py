"""A run as a person watches it on a terminal.

`watch`: what there is to see, as plain data; `words`: numbers and texts as people read them; `screen`: the picture;
`terminal`: taking over a terminal and giving it back; `live`: the loop that repaints.
Only `screen` and `live` know rich.
"""
