"""From records to limits: lengths of answers, timeouts, how many run at once, which flag sets it, and if it helped.

A Python API without I/O: every function takes records (`midstream.journal.read("streams.db").records`) or numbers, and
returns values. `midstream advise` and `midstream compare` call these functions and print what they return.

| function | returns |
|---|---|
| `advise_max_tokens(records)` | the smallest limit that cuts hardly any answer, for each model; needs SciPy |
| `advise_timeout(records)` | the shortest stall timeout that ends hardly any stream that would go on; needs SciPy |
| `safe_concurrency(pool_tokens, lengths)` | two caps by the lengths alone, `never` and `average` |
| `advise_concurrency(records, pool_tokens)` | how many may run at once, by simulation of the engine |
| `advise_flags(engine, ...)` | the flags that set a cap or a limit, and what speaks against it |
| `compare(before, after)` | whether a change helped, and what it cost |

`import midstream` does not import this package.
"""

from midstream.advice.before_after import compare
from midstream.advice.cap_search import CapGoal
from midstream.advice.cap_verdict import CapAdvice
from midstream.advice.capacity import Caps, safe_concurrency
from midstream.advice.comparison import CompareGoal, Comparison, Measure, Side
from midstream.advice.comparison_words import verdict
from midstream.advice.concurrency import NotEnoughStreams, advise_concurrency
from midstream.advice.doubts import Doubt
from midstream.advice.flags import FlagsAdvice, advise_flags
from midstream.advice.limit_words import limit_verdict
from midstream.advice.limits import LimitAdvice, MaxTokensAdvice, advise_max_tokens
from midstream.advice.load import LoadError
from midstream.advice.pool import Pool, PoolError
from midstream.advice.sides import side_of_fleet, side_of_records
from midstream.advice.survival import Quantile, Unsupported
from midstream.advice.timeouts import (
    NoTimeout,
    TimeoutAdvice,
    TimeoutGroup,
    TimeoutValue,
    WaitAdvice,
    advise_timeout,
)
from midstream.advice.timeouts_words import timeout_code, timeout_verdict

__all__ = [
    "CapAdvice",
    "CapGoal",
    "Caps",
    "CompareGoal",
    "Comparison",
    "Doubt",
    "FlagsAdvice",
    "LimitAdvice",
    "LoadError",
    "MaxTokensAdvice",
    "Measure",
    "NoTimeout",
    "NotEnoughStreams",
    "Pool",
    "PoolError",
    "Quantile",
    "Side",
    "TimeoutAdvice",
    "TimeoutGroup",
    "TimeoutValue",
    "Unsupported",
    "WaitAdvice",
    "advise_concurrency",
    "advise_flags",
    "advise_max_tokens",
    "advise_timeout",
    "compare",
    "limit_verdict",
    "safe_concurrency",
    "side_of_fleet",
    "side_of_records",
    "timeout_code",
    "timeout_verdict",
    "verdict",
]
