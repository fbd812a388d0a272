"""Mailboxes: the messages that are kept for one recipient, and who waits for them."""
