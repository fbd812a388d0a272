"""A shop on aiohttp. Start with `python -m aiohttp.web -P 8080 examples.aiohttp_service.app:make_app`."""
