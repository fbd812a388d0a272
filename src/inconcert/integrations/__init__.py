"""Parts for web frameworks, imported by path: `inconcert.integrations.fastapi`.

What frameworks have in common is in the modules with an underscore, which know no framework: answers to errors, names
from a request, health, idempotency, event streams.
"""
