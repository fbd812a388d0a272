"""The servers to connect to: named by a URL, by the user's client or by Sentinels, and which of them is the master now.

Replicas that are waited for and independent servers of a quorum belong here, too.  Sending does not.

Begin with `sources.py`, where the coordinator's client comes from; then `sentinels.py` and `master_watch.py`.
"""
