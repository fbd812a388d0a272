"""Group chats: who is in them, what was said, and how far each member has read."""
