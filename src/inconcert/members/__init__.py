"""Members: who takes part in a group, with what, and which keys are whose.

Read `roster.py` first: what a process knows of a group. `member_state.py` is the lease of one member, `shares.py` how
keys go from one to another, `members.py` and `member.py` what users see.
"""
