"""Mailboxes: what is kept for one recipient, and who waits for it."""
