"""Views of a server for its operators: its memory and persistence, its user's rights, keys that stay by mistake.

A command of `inconcert` or a page of the dashboard shows them; nothing that runs by itself asks for them.

Begin with `examination.py`, then `rights.py`.
"""
