"""The leases and waits of each process, asked of the processes themselves: `Reporter` answers, `inspect` asks.

Here is what reads across primitives and changes nothing; how one of them works is in its own file. Read `report.py`
first.
"""
