"""A Corral, and the processes, threads and event loops of its host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from corral import ConfigError, Corral
from corral.concurrency.lifecycle import _LoopThread  # pyright: ignore[reportPrivateUsage]
from tests.census import with_rest
from tests.until import until_sync

Host = Callable[..., tuple[list[str], str]]


def test_a_fork_that_uses_an_open_corral_is_told_to_open_it_there(host: Host) -> None:
    lines, _ = host("""
        with Corral([double], check=False) as corral:
            run(corral)
            forked(lambda: run(corral))
            run(corral)
    """)
    assert (lines[0], lines[2]) == ("True 42", "True 42")
    assert "ConfigError <Corral of 1 tool, open> was opened before this process was forked" in lines[1]
    assert "`with corral:`" in lines[1]


def test_a_fork_may_open_a_corral_that_is_open_in_the_process_it_comes_from(host: Host) -> None:
    lines, _ = host("""
        def again():
            with corral:
                run(corral)
            run(Corral([double], check=False))

        with Corral([double], check=False) as corral:
            forked(again)
            run(corral)
    """)
    assert lines == ["False 42", "False 42", "True 42"]


@pytest.mark.parametrize(
    "leaving",
    [
        "sys.exit(7)",
        pytest.param("pass", marks=pytest.mark.matrix("a fork that exits is in the gate; one that returns")),
    ],
)
def test_a_fork_that_leaves_the_block_ends_and_harms_nobody(host: Host, leaving: str) -> None:
    lines, stderr = host(f"""
        pid = None
        with Corral([double], check=False) as corral:
            run(corral)
            pid = os.fork()
            if pid == 0:
                {leaving}
            else:
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                run(corral)
        if pid == 0:
            sys.exit(7)
    """)
    assert lines == ["True 42", "7", "True 42"]
    assert stderr == ""


def test_a_fork_in_an_event_loop_is_told_so_too(host: Host) -> None:
    lines, _ = host("""
        async def main():
            async with Corral([double], check=False) as corral:
                pid = os.fork()
                if pid == 0:
                    try:
                        await corral.execute(PROGRAM)
                    except ConfigError as error:
                        print("forked" in str(error), flush=True)
                    await corral.aclose()
                    os._exit(0)
                os.waitpid(pid, 0)
                print((await corral.execute(PROGRAM)).value)

        asyncio.run(main())
    """)
    assert lines == ["True", "42"]


def test_a_corral_that_is_not_open_works_in_every_fork(host: Host) -> None:
    """As where a web server loads an application, and then forks its workers."""
    lines, stderr = host("""
        corral = Corral([double])
        run(corral)
        for _ in range(2):
            forked(lambda: run(corral))
        run(corral)
    """)
    assert lines == ["True 42", "False 42", "False 42", "True 42"]
    assert stderr == ""


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        *(
            pytest.param(method, marks=pytest.mark.matrix("`fork` in the gate; in new interpreters, which import all"))
            for method in ("forkserver", "spawn")
        ),
    ],
)
def test_multiprocessing_runs_programs_in_its_processes_and_takes_tools(host: Host, method: str) -> None:
    lines, stderr = host(f"""
        import dataclasses

        triple = define_tool(name="triple", execute=lambda input: 3 * input["n"])

        def work(tools):
            print([tool.label for tool in tools], flush=True)
            with Corral(tools, check=False) as corral:
                print(corral.sync.execute(PROGRAM).value, flush=True)

        if __name__ == "__main__":
            with Corral([double], check=False) as corral:
                tools = [double, triple, dataclasses.replace(triple, namespace="maths", description="x")]
                child = multiprocessing.get_context("{method}").Process(target=work, args=(tools,))
                child.start()
                child.join()
                print(child.exitcode)
                run(corral)
    """)
    assert lines == ["['double', 'triple', 'maths.triple']", "42", "0", "True 42"]
    assert stderr == ""


@pytest.mark.parametrize("use", ["corral.__enter__()", "corral.sync.execute(PROGRAM)"])
def test_a_corral_that_nobody_closed_ends_with_its_process_without_a_word(host: Host, use: str) -> None:
    lines, stderr = host(f"""
        corral = Corral([double])
        {use}
        print(os.getpid())
    """)
    assert stderr == ""
    until_sync(lambda: children_of(int(lines[0])) == [])


def test_in_development_mode_a_corral_that_nobody_closed_is_warned_about_once(host: Host) -> None:
    _, stderr = host(
        """
        async def main():
            global corral
            corral = Corral([double], check=False)
            await corral.__aenter__()

        asyncio.run(main())
        """,
        "-W",
        "always::ResourceWarning",
    )
    assert stderr.count("ResourceWarning") == 1
    assert "unclosed <Corral of 1 tool, open>: leave `with` or `async with`, or await aclose()" in stderr
    assert "Traceback" not in stderr


def test_a_corral_that_was_closed_is_not_warned_about(host: Host) -> None:
    _, stderr = host("with Corral([double], check=False) as corral: run(corral)", "-W", "always::ResourceWarning")
    assert stderr == ""


@pytest.mark.parametrize(
    "opening",
    with_rest(["with corral:", "if True:"], ["if True:"], "the gate has a Corral that is not open; here an open one"),
)
def test_ctrl_c_ends_the_program_and_leaves_the_corral_usable(host: Host, opening: str) -> None:
    lines, stderr = host(f"""
        import threading

        signal.signal(signal.SIGINT, signal.default_int_handler)
        begun = []

        @tool
        async def stay() -> None:
            threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                await asyncio.sleep(600)
            finally:
                print("ended", flush=True)

        corral = Corral([double, stay], check=False)
        {opening}
            try:
                corral.sync.execute("await tools.stay()")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            run(corral)
    """)
    assert lines == ["ended", "interrupted", "True 42"]
    assert stderr == ""


def test_what_is_interrupted_before_it_can_be_cancelled_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    start = BlockingPortal.start_task_soon

    async def begin(number: int) -> int:
        begun.append(number)
        return number

    def interrupted(*arguments: Any) -> None:
        start(*arguments)
        raise KeyboardInterrupt

    loop = _LoopThread()
    with monkeypatch.context() as patch:
        patch.setattr(BlockingPortal, "start_task_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.call(partial(begin, 1))
    assert loop.call(partial(begin, 2)) == 2  # the loop takes them in order
    loop.close()
    assert begun == [2]


@pytest.mark.anyio
async def test_the_sync_methods_say_what_to_do_where_a_loop_runs() -> None:
    corral = Corral(check=False)
    for use in (lambda: corral.sync.execute("1"), lambda: corral.sync.check("1"), corral.__enter__):
        with pytest.raises(ConfigError, match=r"as in notebooks: use `await corral.execute\(...\)`"):
            use()


def test_a_corral_is_not_pickled_and_says_so() -> None:
    import pickle

    with pytest.raises(ConfigError, match="create one there with the same tools"):
        pickle.dumps(Corral(check=False))


def children_of(pid: int) -> list[str]:
    """Processes that still run of those that a host has started."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "launcher.py" in line and line.endswith(f" {pid}")]
