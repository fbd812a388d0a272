"""A shop on FastAPI. Start with `uvicorn examples.fastapi_service.app:app`."""
