"""A shell for all tests of a module, as opening one costs more than most tests do; and suites of which the gate has a part."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ClassVar, TypeVar

import pytest

from corral.shells import Shell

__all__ = ["ENDS_AND_STREAMS", "ROUND_TRIPS", "SharedShell", "gate_has"]

S = TypeVar("S", bound=type[Any])

ENDS_AND_STREAMS = """
    output_and_errors_are_apart a_process_gives_bytes_exactly an_output_of_3_MB_is_whole
    output_arrives_while_the_command_runs the_start_of_a_line_arrives_before_its_end
    an_exit_code_is_the_commands a_signal_is_128_and_its_number cancelling_ends_a_command
    a_process_may_be_ended_twice_and_after_its_end an_end_ends_all_that_ignores_signals_or_left_the_group
    an_end_ends_what_has_cleared_its_environment_too closing_a_shell_ends_its_commands_and_it_starts_no_more
    input_of_bytes_is_exact input_that_is_not_read_is_dropped input_and_output_take_turns
    a_variable_has_quotes_lines_and_dollars variables_of_the_calling_process_are_not_there
    a_folder_that_is_not_there_is_an_error_before_the_start a_command_of_60_kB
""".split()
"""Cases of commands in which one place where they run differs from another."""
ROUND_TRIPS = """
    bytes_are_exact a_recursive_list_has_paths_from_its_folder a_file_and_a_folder_with_all_in_it_are_deleted
    links_are_followed names_with_spaces_quotes_and_signs_of_bash
""".split()
"""Cases of files that show that a place has them."""


class SharedShell:
    """The factory of the suites, of a kind of shell. A fixture of the module keeps one of them `shared`."""

    opened: ClassVar[Shell]

    @classmethod
    @asynccontextmanager
    async def shared(cls) -> AsyncGenerator[Shell]:
        """Opens the shell that the tests share."""
        async with cls().fresh_shell() as cls.opened:
            yield cls.opened

    def fresh_shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens another one."""
        raise NotImplementedError

    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        """Gives the one that is shared."""
        yield self.opened


def gate_has(*cases: str, rest: str) -> Callable[[S], S]:
    """Marks the other cases of a suite as of the matrix, for this reason. Without cases, all of them."""
    mark = pytest.mark.matrix(rest)

    def marked(suite: S) -> S:
        names = {f"test_{case}" for case in cases}
        assert names <= set(dir(suite)), names - set(dir(suite))
        for name in dir(suite):
            if name.startswith("test_") and name not in names:
                setattr(suite, name, mark(_copy(getattr(suite, name))))
        return suite

    return marked


def _copy(case: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Another function that does the same, as a mark is the function's."""

    @wraps(case)
    async def copy(self: object) -> None:
        await case(self)

    return copy
