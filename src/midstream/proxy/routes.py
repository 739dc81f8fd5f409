"""Which upstream a request goes to: by the beginning of its path, by its model, or the one for everything else. Pure.

small: {upstream: "http://vllm-small:8000", models: [qwen3-8b, "qwen3-8b-*"]}
large: {upstream: "http://vllm-large:8000", path: /large}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from midstream.proxy.upstream import Upstream, upstream_of

MOST_ROUTES = 100
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_FIELDS = {"upstream", "path", "models"}


@dataclass(frozen=True, slots=True)
class Route:
    """One upstream, and which requests it gets: those under a path, or those for some models."""

    name: str
    upstream: Upstream
    path: str | None = None
    """As in `/large`: taken off before the request is passed on."""
    models: tuple[str, ...] = ()
    """Names, in which `*` stands for anything."""


@dataclass(frozen=True, slots=True)
class Routes:
    """All routes, in order, and the upstream for what none of them takes; None if that is refused."""

    routes: tuple[Route, ...] = ()
    fallback: Upstream | None = None

    @property
    def by_models(self) -> bool:
        """Whether the model of a request has to be known."""
        return any(route.models for route in self.routes)

    def of_path(self, raw_path: bytes) -> tuple[Upstream, bytes] | None:
        """The upstream for this path, and the path that it gets; None if no route takes the path."""
        path = raw_path.decode("ascii", "replace")
        for route in self.routes:
            if route.path is not None and (path == route.path or path.startswith(f"{route.path}/")):
                return route.upstream, raw_path[len(route.path) :] or b"/"
        return None

    def of_model(self, model: object) -> Upstream | None:
        """The upstream for this model, or else the one for everything; None if there is none."""
        for route in self.routes:
            if isinstance(model, str) and any(fnmatchcase(model, pattern) for pattern in route.models):
                return route.upstream
        return self.fallback


def routes_of(value: Any) -> tuple[Route, ...]:
    """Read routes as a file has them. Raises ValueError with a sentence that names the route and the remedy."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "it must hold routes by name, as in `small: {upstream: http://vllm:8000, path: /small}`"
        )
    if len(value) > MOST_ROUTES:
        raise ValueError(f"it holds {len(value)} routes; {MOST_ROUTES} are possible")
    routes = tuple(_route(name, each) for name, each in value.items())
    paths = [route.path for route in routes if route.path is not None]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"two routes have the path {twice}; give each a path of its own")
    # The longest first: /a/b is not to be taken by the route for /a.
    return tuple(sorted(routes, key=lambda route: -len(route.path or "")))


def _route(name: object, value: object) -> Route:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ValueError(f"{str(name)[:64]!r} is no name for a route; use letters, digits, dots and dashes")
    if not isinstance(value, Mapping):
        raise ValueError(  # noqa: TRY004 - a file is wrong, not a program
            f"the route {name} must have an `upstream`, and a `path` or `models`"
        )
    unknown = sorted(str(field)[:64] for field in value if field not in _FIELDS)
    if unknown:
        raise ValueError(f"the route {name} has {unknown[0]!r}; a route has upstream, path and models")
    address, path, models = value.get("upstream"), value.get("path"), value.get("models")
    if not isinstance(address, str):
        raise ValueError(  # noqa: TRY004 - the same
            f"the route {name} has no upstream; give it one such as http://localhost:8000"
        )
    if (path is None) == (models is None):
        raise ValueError(f"the route {name} must have either a `path` or `models`")
    if path is not None and not (isinstance(path, str) and _PATH.fullmatch(path)):
        raise ValueError(f"the path of the route {name} must look like /{name}")
    if models is not None and not (
        isinstance(models, list) and models and all(isinstance(model, str) and model for model in models)
    ):
        raise ValueError(f"the models of the route {name} must be a list of names, in which * is anything")
    try:
        return Route(name, upstream_of(address), path, tuple(models or ()))
    except ValueError as error:
        raise ValueError(f"the route {name}: {error}") from None
