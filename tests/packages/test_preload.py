"""Packages that a session's server evaluates before it forks, and those that it must not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from corral import ConfigError, Corral, tool
from corral.packages import NpmPackages
from corral.sandboxes import DenoSandbox
from corral.sandboxes.jailed import fork_provider as preloading
from tests.foreign import PACKAGES
from tests.packages.hostile import folder_of
from tests.packages.test_programs import PROGRAMS

pytestmark = pytest.mark.anyio

STAMP = "const at = performance.now(); exports.at = at; exports.list = []; exports.reads = () => process.env.MODE;"
"""Differs in each process that evaluates it."""
IN_SERVER = 'if (Object.getOwnPropertyDescriptor(globalThis, "console").get === undefined) {'
"""Begins what a package does in the server, and hides from its trial."""


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


def preloaded(folder: Path, **packages: str) -> NpmPackages:
    """All packages of a folder that is made for this."""
    return NpmPackages(folder_of(folder, **packages), preload=list(packages))


InSession: TypeAlias = Callable[..., Awaitable[list[Any]]]


@pytest.fixture(scope="module")
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral([add], sandbox=warm_deno, check=False) as corral:
        yield corral


@pytest.fixture
async def in_session(corral: Corral) -> InSession:
    return partial(run_in_session, corral)


async def run_in_session(corral: Corral, packages: NpmPackages, *programs: str) -> list[Any]:
    """Values of programs in a session of their own, or the messages of their errors."""
    found: list[Any] = []
    async with corral.session(packages=packages, languages=["typescript"]) as session:
        for program in programs:
            result = await session.execute(program)
            found.append(result.value if result.error is None else result.error.message)
    return found


def test_preloading_what_may_not_be_imported_is_wrong_set_up() -> None:
    with pytest.raises(
        ConfigError, match=r"preload: 'jzip' is not a package .*; did you mean 'jszip'\? they may import: "
    ):
        NpmPackages(PACKAGES, preload=["jzip"])
    with pytest.raises(ConfigError, match=r"preload: 'uuid' is not a package .*; they may import: jszip$"):
        NpmPackages(PACKAGES, allow=["jszip"], preload=["uuid"])
    assert repr(NpmPackages(PACKAGES, allow=["jszip"], preload=["jszip"])).endswith(
        "allow=['jszip'], preload=['jszip'])"
    )


async def test_a_preloaded_package_is_evaluated_once_and_changed_for_one_program(
    in_session: InSession, tmp_path: Path
) -> None:
    packages = preloaded(
        tmp_path,
        stamp=STAMP,
        timed="const later = setTimeout; exports.wait = () => new Promise((done) => later(done, 1, 'waited'));",
        filed='const { readFileSync } = require("fs"); exports.read = (path) => readFileSync(path, "utf8");',
    )
    first = (
        'import s, { at } from "stamp"; s.list.push(1); Array.prototype.mine = 1; return [at, s.list.length, [].mine];'
    )
    programs = [
        first,
        first,
        "return typeof [].mine;",
        'import { wait } from "timed"; return await wait();',
        'import "stamp"; await new Promise(() => {});',
        'require("fs").writeFileSync("a.txt", "hello"); return require("filed").read("/workspace/a.txt");',
        'const name = "stamp"; return typeof require(name).at;',
        'return [typeof require("stamp").reads(), typeof {}.__proto__];',
        "return typeof {}.__proto__;",
    ]
    one, two, *others = await in_session(packages, *programs)
    assert packages.not_preloaded == {}
    assert one == two
    assert one[1:] == [1, 1]
    stuck = "the program waits for a promise that nothing will settle: no tool call or timer is pending"
    assert others == ["undefined", "waited", stuck, "hello", "number", ["undefined", "object"], "undefined"]


async def test_a_package_that_asks_for_the_environment_finds_that_of_the_program(
    corral: Corral, tmp_path: Path
) -> None:
    packages = preloaded(tmp_path, asks=f"{STAMP} exports.mode = process.env.MODE ?? 'none';")
    program = 'const { at, mode, reads } = require("asks"); return [at, mode, reads() ?? "none"];'
    async with corral.session(packages=packages, languages=["typescript"]) as session:
        first, second = [(await session.execute(program)).value for _ in range(2)]
        given = (await session.execute(program, env={"MODE": "fast"})).value
        other = (await session.execute(program, env={"OTHER": "x"})).value
    assert packages.not_preloaded == {}
    assert first == second == other
    assert first[1:] == ["none", "none"]
    assert given[1:] == ["fast", "fast"]
    assert given[0] != first[0]


async def test_what_processes_must_not_share_is_evaluated_in_each(
    in_session: InSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loading = {
        "draws": ("exports.x = Math.random();", "it draws random numbers while it loads"),
        "unique": ("exports.x = crypto.randomUUID();", "it draws random numbers while it loads"),
        "bytes": (
            'exports.x = require("crypto").randomBytes(9).toString("hex");',
            "it draws random numbers while it loads",
        ),
        "lists": ("exports.x = Object.keys(process.env);", "it lists process.env while it loads"),
        "place": ("exports.x = process.cwd();", "it calls process.cwd() while it loads"),
        "files": ('exports.x = require("fs").readdirSync("/workspace");', "it uses files while it loads"),
        "sends": (
            'try { require("http").request("http://x").on("error", () => {}).end(); } catch {} exports.x = 1;',
            "it uses the module http while it loads",
        ),
        "says": ("exports.x = typeof console;", "it reads the global console while it loads"),
        "fetches": ("exports.x = typeof fetch;", "it reads the global fetch while it loads"),
        "waits": ("setTimeout(() => {}, 1); exports.x = 1;", "it calls setTimeout while it loads"),
        "adds": ("Array.prototype.extra = 1; exports.x = 1;", "it changes the global Array.prototype.extra"),
        "sets": ("globalThis.extra = 1; exports.x = 1;", "it changes the global extra"),
        "throws": ('throw new Error("not today");', "it throws while it loads: not today"),
    }
    packages = preloaded(tmp_path, stamp=STAMP, **{name: code for name, (code, _) in loading.items()})
    text = 'return [require("draws"), require("unique"), require("bytes")].map((each) => each.x);'
    first, second, said, clean = await in_session(
        packages,
        text,
        text,
        'return require("throws");',
        "return [typeof extra, typeof [].extra];",
    )
    assert packages.not_preloaded == {name: reason for name, (_, reason) in loading.items()}
    assert (len(first), len({*first, *second})) == (3, 6), first
    assert (said, clean) == ("not today", ["undefined", "undefined"])
    logged = [each.getMessage() for each in caplog.records if "is not preloaded" in each.getMessage()]
    assert len(logged) == len(loading)


async def test_a_package_that_loads_without_end_is_given_up(
    in_session: InSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preloading, "_TRIAL_SECONDS", 0.3)
    packages = preloaded(tmp_path, endless="if (!globalThis.go) for (;;);")
    assert await in_session(packages, "globalThis.go = true; return typeof require('endless');") == ["object"]
    assert packages.not_preloaded == {"endless": "it did not load within 0.3 s"}


@pytest.mark.matrix("a Corral preloads packages in the gate; here sessions do, each its own")
async def test_packages_are_preloaded_for_each_session(in_session: InSession, tmp_path: Path) -> None:
    packages = preloaded(tmp_path, stamp=STAMP)
    found = [await in_session(packages, *['return require("stamp").at;'] * 2) for _ in range(2)]
    assert packages.not_preloaded == {}
    assert all(first == second for first, second in found)
    assert found[0] != found[1]


@pytest.mark.matrix("a package that loads without end falls back in the gate; here one that is large")
async def test_a_package_that_needs_too_much_memory_falls_back(in_session: InSession, tmp_path: Path) -> None:
    packages = preloaded(tmp_path, stamp=STAMP, greedy="const all = []; for (;;) all.push(new Array(1e6).fill(1));")
    first, second = await in_session(packages, *['return require("stamp").at;'] * 2)
    assert first == second
    assert list(packages.not_preloaded) == ["greedy"]
    assert packages.not_preloaded["greedy"].startswith("it did not load: ")


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        *(
            pytest.param(
                *case, marks=pytest.mark.matrix("a server that differs is not used in the gate; in other ways")
            )
            for case in (
                ("for (;;);", "the server did not load them within 0.3 s"),
                ("crypto.randomUUID();", "forked processes draw the same random numbers"),
            )
        ),
        ("Object.defineProperty(globalThis, 'Uint8Array', { value: null });", "the server did not load them as "),
    ],
)
async def test_a_server_that_does_something_else_than_the_trial_is_not_used(
    in_session: InSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, reason: str
) -> None:
    if hidden == "for (;;);":
        monkeypatch.setattr(preloading, "_PRELOAD_SECONDS", 0.3)
    packages = preloaded(tmp_path, sly=f"{IN_SERVER} {hidden} }} exports.x = 1;")
    values = await in_session(packages, *["return crypto.randomUUID() + Math.random();"] * 2)
    assert reason in packages.not_preloaded["sly"]
    assert len({*values}) == 2


LOOT = """
globalThis.loot = [];
let armed = false;
const keep = (found) => {
  if (/^.object .*(Array|Buffer|View).$/.test(Object.prototype.toString.call(found)) && !Array.isArray(found)) loot[loot.length] = `${Object.prototype.toString.call(found)} ${found.byteLength}`;
  else loot[loot.length] = typeof found;
};
const watched = (action) => function () {
  if (armed) {
    armed = false;
    keep(this);
    for (let index = 0; index < arguments.length; index++) keep(arguments[index]);
    armed = true;
  }
  return Reflect.apply(action, this, arguments);
};
for (const type of [Uint8Array, Int32Array, BigUint64Array, Array, Map, TextDecoder, TextEncoder, ArrayBuffer, DataView]) {
  for (const owner of [type.prototype, Object.getPrototypeOf(type.prototype)]) {
    for (const name of Reflect.ownKeys(owner)) {
      const found = Object.getOwnPropertyDescriptor(owner, name);
      if (!found.configurable || owner === Object.prototype || name === "constructor") continue;
      if (typeof found.value === "function") Object.defineProperty(owner, name, { ...found, value: watched(found.value) });
      else if (found.get) Object.defineProperty(owner, name, { ...found, get: watched(found.get) });
    }
  }
}
for (const name of ["Uint8Array", "Int32Array", "BigUint64Array", "BigInt"]) {
  const type = globalThis[name];
  globalThis[name] = new Proxy(type, {
    construct(target, args, made) {
      const it = Reflect.construct(target, args, made);
      return watched(() => it).call(it);
    },
    apply(target, self, args) {
      return Reflect.apply(watched(target), self, args);
    },
  });
}
for (const type of [Uint8Array, Int32Array, BigUint64Array]) {
  const species = function () {
    watched(() => {}).apply(this, arguments);
    return Reflect.construct(type, arguments);
  };
  Object.defineProperty(type.prototype, "constructor", { value: { [Symbol.species]: species } });
}
armed = true;
exports.take = () => { armed = false; return loot; };
"""
"""Looks at everything that the server uses of the language."""


async def test_a_hostile_package_in_the_server_sees_none_of_what_native_calls_use(
    in_session: InSession, tmp_path: Path
) -> None:
    packages = preloaded(tmp_path, sly=f"{IN_SERVER} {LOOT} }} else exports.take = () => [];", stamp=STAMP)
    program = """
const { take } = require("sly");
const found = take(); delete globalThis.extra;
return [found.length > 0, [...new Set(found)].filter((each) => each.startsWith("[object")), typeof Deno?.dlopen];
"""
    values = await in_session(packages, *[program] * 4)  # of which the later ones were forked ahead
    assert packages.not_preloaded == {}
    assert values == [[True, [], "undefined"]] * 4


@pytest.mark.matrix("a server that differs from its trial is not used in the gate; here its answer differs")
async def test_a_server_whose_answer_a_package_has_changed_is_not_used(in_session: InSession, tmp_path: Path) -> None:
    packages = preloaded(tmp_path, sly=f"{IN_SERVER} Array.prototype.toJSON = () => null; }}")
    assert await in_session(packages, "return 1", "return [1, 2]") == [1, [1, 2]]
    said = "the server did not load them as their trials did: its answer is malformed"
    assert packages.not_preloaded == {"sly": said}


@pytest.mark.matrix("small packages of our own are preloaded in the gate; twelve real ones")
async def test_programs_find_preloaded_packages_as_they_are(corral: Corral) -> None:
    packages = NpmPackages(PACKAGES, preload=[*NpmPackages(PACKAGES).allowed, "lodash/chunk"])
    async with corral.session(packages=packages, languages=["typescript"]) as session:
        for name, (program, expected) in PROGRAMS.items():
            result = await session.execute(program)
            expected = [*expected[:-1], "/workspace"] if name == "modules of node" else expected
            assert (name, result.error, result.value) == (name, None, expected)
    assert list(packages.not_preloaded) == ["exceljs"]
    assert packages.not_preloaded["exceljs"].startswith(
        "it draws random numbers while it loads; it changes the global "
    )


@pytest.mark.parametrize(("isolation", "shares"), [("fork", True), ("process", False)])
async def test_a_corral_preloads_where_processes_are_forked(tmp_path: Path, isolation: Any, shares: bool) -> None:
    sandbox = DenoSandbox(isolation=isolation, pool_size=0)
    corral = Corral(
        check=False, sandbox=sandbox, packages=preloaded(tmp_path, draws="exports.x = {}.constructor;", stamp=STAMP)
    )
    program = 'return require("stamp").at;'
    first, second = [(await corral.execute(program)).value for _ in range(2)]
    assert (first == second) is shares
    await corral.aclose()
