"""How the library meets frameworks, and the tests of its users: each once, on the versions that are installed."""
