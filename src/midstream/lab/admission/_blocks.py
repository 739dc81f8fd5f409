"""vLLM's pool of KV blocks: a free list in the order of eviction, and blocks found again by their content.

Follows `vllm/v1/core/block_pool.py` and `kv_cache_manager.py`, 0.33.0. Prompts share nothing with each other
here, so the only content that can be found again is what a preempted request left behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class BlockPool:
    """Blocks that can be handed out. Those longest free go first, and lose their content with that."""

    def __init__(self, blocks: int) -> None:
        self._free: OrderedDict[int, tuple[int, int] | None] = OrderedDict.fromkeys(range(blocks))
        self._content: dict[tuple[int, int], int] = {}
        self.size = blocks

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Hand out blocks, the longest free first."""
        allotted = []
        for _ in range(count):
            block, content = self._free.popitem(last=False)
            if content is not None:
                self._forget(content, block)
            allotted.append(block)
        return allotted

    def give_back(self, blocks: list[int], *, owner: int = 0, full: int = 0) -> None:
        """Free a request's blocks, last first so that its beginning survives longest.

        The first `full` blocks keep their content, to be found again by the same owner.
        """
        free, content = self._free, self._content
        for index in range(len(blocks) - 1, -1, -1):
            key = (owner, index) if index < full else None
            free[blocks[index]] = key
            if key is not None:
                content[key] = blocks[index]

    def find(self, owner: int, most: int) -> list[int]:
        """Return the blocks, from the first on, whose content is still that of the owner; at most `most`."""
        found: list[int] = []
        while len(found) < most:
            block = self._content.get((owner, len(found)))
            if block is None:
                break
            found.append(block)
        return found

    def reclaim(self, blocks: Iterable[int]) -> None:
        """Take found blocks out of the free list again."""
        for block in blocks:
            content = self._free.pop(block)
            if content is not None:
                self._forget(content, block)

    def _forget(self, content: tuple[int, int], block: int) -> None:
        # An owner that was preempted twice may have left the same content in two blocks: the later one
        # counts.
        if self._content.get(content) == block:
            del self._content[content]
