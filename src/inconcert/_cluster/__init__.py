"""What `_redis` has for one server, for a cluster: commands, messages and bells go to the master of their slot.

Begin with `router.py`.
"""
