"""Signals: who waits for them, and what is said to all or to one."""
