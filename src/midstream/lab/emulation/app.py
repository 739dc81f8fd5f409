"""An engine's HTTP server: its paths, its models, its answers, its metrics."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from midstream._support.foreign import ForeignError, json_of
from midstream.engines import facts_of
from midstream.engines.faults import Fault
from midstream.lab.admission import ENGINES, build, engine, engine_name
from midstream.lab.admission import Request as Ask
from midstream.lab.drive import Drive
from midstream.lab.emulation.chat import ChatWriter
from midstream.lab.emulation.completions import CompletionWriter
from midstream.lab.emulation.emulated_engine import EmulatedEngine
from midstream.lab.emulation.meter import PageContent
from midstream.lab.emulation.meters import meter_of
from midstream.lab.emulation.request_body import BadRequestError, ParsedRequest, read_body
from midstream.lab.emulation.responses import ResponseWriter
from midstream.lab.emulation.serving import AnswerExchange, Streamed, Whole
from midstream.lab.emulation.writing import AnswerWriter, Head
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.lab.recording import PATHS, Operation
from midstream.lab.workload import Length, generator

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DEFAULT_SIGMA, DEFAULT_MOST = 0.8, 4096


def default_answer(rng: random.Random) -> int:
    """Draw an answer as chats have them: lognormal, a median of 218 tokens, a mean of 300, at most 4,096."""
    return max(1, min(DEFAULT_MOST, round(rng.lognormvariate(5.384, DEFAULT_SIGMA))))


@dataclass(frozen=True, slots=True)
class Emulated:
    """What is emulated. `flags` are the engine's own; `speed` is how many of its seconds pass in one of ours.

    Raises ValueError for an engine, a flag or a speed that there is not.
    """

    engine: str = "vllm"
    flags: dict[str, Any] = field(default_factory=dict)
    hardware: HardwareProfile = PROFILES["l4"]
    model: str = "emulated"
    speed: float = 1.0
    answer: Length = default_answer
    seed: int = 0
    keep_alive_s: float | None = None
    """Sends a comment when nothing else was sent for so long; None is the engine's own default, 0 is never."""

    def __post_init__(self) -> None:
        """Refuse what cannot be emulated, before anything is served."""
        object.__setattr__(self, "engine", engine_name(self.engine))
        engine(self.engine, **self.flags)
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise ValueError(f"speed must be positive, got {self.speed}; 1 is as the hardware is")


def emulator(emulated: Emulated) -> Starlette:
    """Return the application of an emulated engine."""
    return _EmulatorApplication(emulated).application()


class _EmulatorApplication:
    def __init__(self, emulated: Emulated) -> None:
        self._it = emulated
        self._dialect = facts_of(emulated.engine).dialect
        flags = ENGINES[emulated.engine].settings(**emulated.flags)
        built = build(emulated.engine, flags)
        self._context = self._dialect.context(flags) or built.load.capacity
        self._meter = meter_of(emulated.engine, emulated.model, flags, built)
        self._engine = EmulatedEngine(Drive(built, emulated.hardware), self._meter, emulated.speed)
        self._numbers = count()
        alive = emulated.keep_alive_s if emulated.keep_alive_s is not None else self._dialect.keep_alive_s
        self._keep_alive_s = alive / emulated.speed if alive else None

    def application(self) -> Starlette:
        routes = [
            Route(path, self._answer(operation), methods=["POST"])
            for operation, path in PATHS.items()
            if operation != "responses" or self._dialect.responses
        ]
        pages = [Route(path, self._page(page)) for path, page in self._meter.pages().items()]
        return Starlette(
            routes=[
                *routes,
                *pages,
                Route("/v1/models", self._models),
                Route("/health", lambda _: Response()),
                Route("/version", lambda _: JSONResponse({"version": self._dialect.version})),
            ],
            exception_handlers={404: self._nothing_here, 405: self._nothing_here},
        )

    def _answer(self, operation: Operation) -> Callable[[Request], Any]:
        async def answer(request: Request) -> ASGIApp:
            try:
                body = json_of((await request.body()).decode())
                asked = read_body(body, operation, self._dialect)
                self._check(asked)
            except ClientDisconnect:
                return Response()
            except (ForeignError, UnicodeDecodeError):
                return self._refuse(Fault(400, "The request body is not JSON."))
            except BadRequestError as error:
                return self._refuse(error.fault)
            exchange = self._exchange(asked)
            return Streamed(exchange) if asked.stream else Whole(exchange)

        return answer

    def _check(self, asked: ParsedRequest) -> None:
        """Raise BadRequestError for what the engine refuses before it looks at its memory."""
        if self._dialect.model == "checked" and asked.model not in ("", self._it.model):
            raise BadRequestError(f"The model `{asked.model}` does not exist.", "model", 404)
        words = self._dialect.faults.request_too_long
        if asked.limit is None or words is None or asked.prompt_tokens >= self._context:
            return
        if not self._dialect.streamed_refusals & {422} and asked.prompt_tokens + asked.limit > self._context:
            fault = self._dialect.faults.too_long(asked.prompt_tokens, asked.limit, self._context)
            raise BadRequestError(fault.message, fault.param)

    def _exchange(self, asked: ParsedRequest) -> AnswerExchange:
        number = next(self._numbers)
        model = asked.model if self._dialect.model == "echoed" and asked.model else self._it.model
        name = f"{random.Random(f'{self._it.seed} {number}').getrandbits(64):016x}"  # noqa: S311 - a name, no secret
        prefix = {
            "chat": self._dialect.chat_id,
            "text_completion": self._dialect.text_id,
            "responses": "resp_",
        }
        identity = f"{prefix[asked.operation]}{name}" if self._dialect.ids else ""
        head = Head(identity, int(time.time()), model, dict(self._dialect.chunk))
        writers: dict[Operation, Callable[..., AnswerWriter]] = {
            "chat": ChatWriter,
            "text_completion": CompletionWriter,
            "responses": ResponseWriter,
        }
        return AnswerExchange(
            engine=self._engine,
            dialect=self._dialect,
            asked=asked,
            request=Ask(0, asked.prompt_tokens, self._length(asked, number), asked.limit),
            writer=writers[asked.operation](self._dialect, asked, head),
            context=self._context,
            keep_alive_s=self._keep_alive_s,
        )

    def _length(self, asked: ParsedRequest, number: int) -> int | None:
        """Return how long the answer becomes: as told, else endless, else drawn by the seed of the request."""
        if asked.answer_tokens is not None:
            return max(1, asked.answer_tokens - asked.continues)
        if asked.endless:
            return None
        drawn_by = f"answer {number if asked.seed is None else f'seed {asked.seed}'}"
        length = self._it.answer(generator(drawn_by, self._it.seed))
        return max(1, length - asked.continues)

    async def _models(self, _: Request) -> Response:
        card: dict[str, Any] = {
            "id": self._it.model,
            "object": "model",
            "created": 0,
            "owned_by": self._dialect.owner,
        }
        card |= self._dialect.model_card(self._it.model, self._context)
        return JSONResponse({"object": "list", "data": [card]})

    def _page(self, page: Callable[[], PageContent]) -> Callable[[Request], Any]:
        async def show(_: Request) -> Response:
            self._engine.refresh()
            kind, data = page()
            return Response(data, media_type=kind)

        return show

    def _refuse(self, fault: Fault) -> Response:
        return JSONResponse(self._dialect.faults.body(fault), status_code=fault.status)

    async def _nothing_here(self, request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        if self._dialect.unknown_path == "error":
            return self._refuse(Fault(404, "File Not Found"))
        if self._dialect.unknown_path == "empty":
            return PlainTextResponse("", status_code=status)
        detail = "Method Not Allowed" if status == 405 else "Not Found"
        return JSONResponse({"detail": detail}, status_code=status)
