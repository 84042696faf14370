"""The server's calls and its ASGI application.

| call | |
|---|---|
| /v1/completions, /v1/models, /v1/embeddings | in the format of OpenAI's API |
| /tokenize, /tokenizer_info | in vLLM's format |
| /classify | label texts with a fine-tuned model |
| /v1/fill | fill the blanks of a text with a masked model |
| /inspect | return attention and every layer's prediction, for the page |
| /health, /metrics, /openapi.json | for operators |
| / | the page |
| /page/reading/NAME | the pages of docs/reading that it links to |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from headwater.serve import documentation, inspection, schema, tasks
from headwater.serve.answers import ComputedResponse, EventStream, Json, reported
from headwater.serve.completions import complete, stream
from headwater.serve.config import ServeConfig
from headwater.serve.guard import Guard
from headwater.serve.keys import Keys
from headwater.serve.opening import reopened_models
from headwater.serve.problems import Problem, invalid
from headwater.serve.served import Served, Server

PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_ERROR = 'An error: {"error": {"message", "type", "param", "code"}}. 429 and 503 can be tried again later.'
_MESSAGES = {401: "No valid API key.", 404: "There is no such page.", 405: "That method is not allowed here."}


def create_app(models: list[Served], config: ServeConfig, keys: Keys | None = None) -> FastAPI:
    """Return the ASGI application; its `state.server` is the Server. The models' threads run while it does."""
    server = Server(models, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.start()
        async with reopened_models(server):
            yield
        server.stop()

    app = FastAPI(
        title="Headwater",
        version=version("headwater"),
        description="An OpenAI-compatible API for models like GPT-1 and GPT-2.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={"default": {"description": _ERROR}},
    )
    app.state.server = server
    app.add_middleware(Guard, config=config, keys=keys, metrics=server.metrics)
    if config.allow_origins:  # the last, so the outermost: it answers a preflight, which has no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
            allow_private_network=True,
        )
    _answer_errors(app)
    _add_openai(app, server)
    _add_own(app, server)
    _add_vllm(app, server)
    _add_operation(app, server)
    _add_page(app)
    return app


def _answer_errors(app: FastAPI) -> None:
    """Answer the framework's own errors in the API's format, as `Guard` answers every Problem."""

    @app.exception_handler(RequestValidationError)
    async def wrong(_: Request, error: RequestValidationError) -> Response:
        return reported(invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        message = _MESSAGES.get(error.status_code, f"{error.detail}.")
        if error.status_code == 400:
            message = f"The body is not JSON in UTF-8: {str(error.__cause__).partition(';')[0]}."
            if isinstance(error.__cause__, RecursionError):
                message = "The lists and objects of the body are nested too deeply."
        return reported(Problem(error.status_code, message, headers=error.headers))


def _add_openai(app: FastAPI, server: Server) -> None:
    @app.post("/v1/completions", responses={200: {"content": {"text/event-stream": {}}}}, tags=["OpenAI"])
    async def completions(body: schema.CompletionRequest) -> Any:
        """Continue a prompt."""

        name = server.choose(body.model, attrgetter("lm.config.is_causal"))
        if body.stream:
            return EventStream(server, name, lambda request: stream(request, body))
        return ComputedResponse(server, name, lambda request: complete(request, body))

    @app.post("/v1/chat/completions", tags=["OpenAI"])
    async def chat() -> Any:
        """Refuse a chat and say why."""
        raise Problem(
            400,
            "These models continue a text and were not trained on chats, so they have no chat template. "
            "Send the text as `prompt` to /v1/completions.",
            param="messages",
            code="chat_not_supported",
        )

    @app.get("/v1/models", tags=["OpenAI"])
    async def models() -> Any:
        """List the models of this server."""
        return Json({"object": "list", "data": [tasks.card(served) for served in server.models.values()]})

    @app.get("/v1/models/{name:path}", tags=["OpenAI"])
    async def model(name: str) -> Any:
        """Describe one model."""
        return Json(tasks.card(server.find(name)))

    @app.post("/v1/embeddings", tags=["OpenAI"])
    async def embeddings(body: schema.EmbeddingRequest) -> Any:
        """Embed texts: the mean of each text's final states, scaled to length 1."""
        return ComputedResponse(server, body.model, lambda request: tasks.embed(request, body), "input")


def _add_own(app: FastAPI, server: Server) -> None:
    @app.post("/classify", tags=["Headwater"])
    async def classify(body: schema.ClassifyRequest) -> Any:
        """Label texts with a fine-tuned model."""
        name = server.choose(body.model, attrgetter("fine_tuned"))
        return ComputedResponse(server, name, lambda request: tasks.classify(request, body), "input")

    @app.post("/v1/fill", tags=["Headwater"])
    async def fill(body: schema.FillRequest) -> Any:
        """Fill each `[MASK]` of a text with a masked model."""
        name = server.choose(body.model, attrgetter("lm.config.is_masked"))
        return ComputedResponse(server, name, lambda request: tasks.fill(request, body), "input")

    @app.post("/inspect", include_in_schema=False)
    async def inspect(body: schema.InspectRequest) -> Any:
        """Return what the model computes at one position: attention, states, every layer's prediction."""
        name = server.choose(body.model, attrgetter("lm.config.is_causal"))
        return ComputedResponse(server, name, lambda request: inspection.inspect(request, body))


def _add_vllm(app: FastAPI, server: Server) -> None:
    @app.post("/tokenize", tags=["vLLM"])
    async def tokenize(body: schema.TokenizeRequest) -> Any:
        """Split a text into tokens."""
        return ComputedResponse(server, body.model, lambda request: tasks.tokenize(request, body))

    @app.get("/tokenizer_info", tags=["vLLM"])
    async def tokenizer_info(model: str | None = None) -> Any:
        """Describe a model's tokenizer."""
        return Json(tasks.tokenizer_info(server.find(model)))


def _add_operation(app: FastAPI, server: Server) -> None:
    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["Operation"])
    async def health() -> Any:
        """Report whether every model can answer: 503 if one cannot.

        stale: models whose changed folder cannot be opened again; the old ones answer.
        """
        failed = [name for name, served in server.models.items() if not served.alive]
        stale = [name for name, served in server.models.items() if served.stale]
        status = "failed" if failed else "stale" if stale else "ok"
        content = {"status": status, "models": list(server.models), "failed": failed, "stale": stale}
        return Json(content, status_code=503 if failed else 200)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["Operation"])
    async def metrics() -> Any:
        """Return the metrics in Prometheus' text format."""
        return PlainTextResponse(server.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    files = {file.name: file for file in sorted(PAGE.iterdir()) if file.suffix in _TYPES}

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Any:
        return FileResponse(files["index.html"], media_type="text/html", headers=_PAGE_HEADERS)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Any:
        if name not in files:
            raise Problem(404, "There is no such page.")
        return FileResponse(files[name], media_type=_TYPES[files[name].suffix], headers=_PAGE_HEADERS)

    @app.get("/page/reading/{name}", include_in_schema=False)
    async def reading_page(name: str) -> Any:
        if name not in documentation.files():
            raise Problem(404, "There is no such page.")
        return HTMLResponse(documentation.page(name), headers=_PAGE_HEADERS)
