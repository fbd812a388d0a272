"""Queues of items: put in by some, handed out to others, kept until they are acknowledged."""
