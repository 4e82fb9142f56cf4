"""Base of the suites whose cases get an opened subject, such as a shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any


class Cases:
    """Suite whose cases take their subjects as parameters. pytest sees none: `_provide` opens them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(f"{__package__}."):  # parameters of your own tests are fixtures
            for name, case in list(vars(cls).items()):
                if name.startswith("test_") and (names := tuple(signature(case).parameters)[1:]):
                    setattr(cls, name, _opening(case, names))

    def _provide(self, names: Sequence[str]) -> Any:
        """Opens the subjects that a case needs, during an `async with` block, or a `with` block for synchronous cases.
        Its value has them by name."""
        raise NotImplementedError


def _opening(case: Callable[..., Any], names: Sequence[str]) -> Callable[[Cases], Any]:
    async def run(self: Any) -> None:
        async with self._provide(names) as subjects:
            await case(self, **subjects)

    def run_sync(self: Any) -> None:
        with self._provide(names) as subjects:
            case(self, **subjects)

    made = update_wrapper(run if iscoroutinefunction(case) else run_sync, case)
    # pytest would take the case's parameters for fixtures
    vars(made)["__signature__"] = Signature([Parameter("self", Parameter.POSITIONAL_ONLY)])
    return made
