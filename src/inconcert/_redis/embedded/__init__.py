"""Servers that a program starts for itself, alone or as a cluster, and that end with it.

Starting, watching and stopping the processes belongs here.  How they are connected to does not.

Begin with `embedded.py`, then `server_process.py`.
"""
