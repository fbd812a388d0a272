"""An agent behind a page. Start with `uvicorn examples.agent_service.app:app`, and a worker beside it."""
