"""The counterpart of `_redis` for a cluster: commands, messages and bells go to the master of their slot.

Begin with `router.py`.
"""
