"""A shop on Litestar. Start with `uvicorn examples.litestar_service.app:app`."""
