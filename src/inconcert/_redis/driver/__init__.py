"""All that depends on redis-py: which clients are accepted, their options and credentials, and why they cannot connect.

Differences between versions of the driver belong here and nowhere else.  The bytes on a connection do not.

Begin with `clients.py`, then `driver.py`, which lists what differs between versions.
"""
