"""Signals: who waits for them, and the messages to all or to one."""
