"""A chat service on aiohttp. Start with `python -m aiohttp.web -P 8080 examples.chat_service.app:make_app`."""
