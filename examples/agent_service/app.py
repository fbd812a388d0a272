"""The page of the agent, and what it asks for. The work is done by workers, in processes of their own.

    uvicorn examples.agent_service.app:app --timeout-graceful-shutdown 10

INCONCERT_URL names the server. A real service would ask for a password, and let only its owner see an answer.
"""

from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import FileResponse

from examples.agent_service.agent import answer, concert
from inconcert.integrations.fastapi import install, job_stream, lifespan

app = FastAPI(lifespan=lifespan(concert))
install(app, concert)


@app.get("/")
async def page() -> FileResponse:
    """One page for all answers: `/?job=ID` shows that one, also when it is loaded again."""
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/answers", status_code=201)
async def ask(question: Annotated[str, Body(embed=True)]) -> str:
    """Begin an answer; its job."""
    return (await answer.enqueue(question)).id


@app.get("/answers/{job_id}")
async def follow(request: Request, job_id: str) -> Response:
    """What the agent says, from the beginning or behind `Last-Event-ID`, until it has ended."""
    return job_stream(request, concert, job_id)


@app.put("/answers/{job_id}/approval")
async def approve(job_id: str, approved: Annotated[bool, Body(embed=True)]) -> bool:
    """Answer what the agent asks; whether this is the first answer, which counts."""
    return await concert.tasks.job(job_id).send("approval", approved)
