"""Chooses the recording that answers a request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from midstream.lab.recording import PATHS, Operation, Recording


class RefusedError(Exception):
    """A request that no recording answers, in the words of vLLM's error object."""

    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.kind = "NotFoundError" if status == 404 else "BadRequestError"


class Choice:
    """The recordings to choose from: by their own names, or by turns under the model they were recorded from.

    A recorded refusal answers to its own name only: a request for a model does not expect one by turns.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._named = {recording.name: recording for recording in recordings}
        if not recordings or len(self._named) < len(recordings):
            raise ValueError("recordings must be given, and each must have a name of its own")
        shared: dict[tuple[Operation, str], list[Recording]] = {}
        for recording in recordings:
            if recording.is_stream:
                shared.setdefault((recording.operation, recording.model), []).append(recording)
        self._turns = {key: cycle(streams) for key, streams in shared.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """What the recordings are called."""
        return tuple(self._named)

    def pick(self, operation: Operation, model: object) -> Recording:
        """Return the recording that answers, or raise the RefusedError that does."""
        if not isinstance(model, str):
            raise RefusedError(
                400,
                "Say which recording to play: `model` must be its name; GET /v1/models lists them.",
                "model",
            )
        named = self._named.get(model)
        if named is not None and named.operation == operation:
            return named
        turns = self._turns.get((operation, model))
        if turns is not None:
            return next(turns)
        elsewhere = self._paths_of(model)
        if elsewhere:
            raise RefusedError(
                400,
                f"`{model}` was recorded at {' and '.join(elsewhere)}, not at {PATHS[operation]}; ask there.",
                "model",
            )
        raise RefusedError(
            404, f"The model `{model}` does not exist. GET /v1/models lists the recordings that do.", "model"
        )

    def _paths_of(self, model: str) -> list[str]:
        named = self._named.get(model)
        operations = {operation for operation, shared in self._turns if shared == model}
        if named is not None:
            operations.add(named.operation)
        return [path for operation, path in PATHS.items() if operation in operations]
