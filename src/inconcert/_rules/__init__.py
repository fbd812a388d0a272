"""Pure decisions: checks of what users pass, encodings, signatures and delays, as functions of their arguments alone.

What does I/O, or reads a clock or random numbers of its own, does not belong here.

Begin with `names.py` and `durations.py`, which check the arguments that most primitives take.
"""
