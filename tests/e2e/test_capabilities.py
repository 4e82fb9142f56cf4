"""Whatever way a program gets at a tool: that it can call it is in its capabilities, before it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from corral import Corral, tool
from corral.types import Language
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio

TYPESCRIPT = {
    "arguments": "function main(){ return arguments[0].secret({}) }",
    "rest": "async function main(...x){ return await x[0].secret({}) }",
    "a rest behind a parameter": "async function main(a, ...x){ return await a.secret({}) }",
    "a pattern in a pattern": "export default async ({ tools: { secret } }) => await secret({})",
    "an accessor of all objects": (
        "Object.defineProperty(Object.prototype,'zz',{get(){return this},configurable:true});\n"
        "return await zz.tools.secret({})"
    ),
    "an old accessor": (
        "Object.prototype.__defineGetter__('qq',function(){return this});\nreturn await qq['to'+'ols'].secret({})"
    ),
    "an accessor that is spelled": (
        "Object['define'+'Property'](Object['proto'+'type'],'zz',{get(){return this},configurable:true});\n"
        "return await zz.tools.secret({})"
    ),
    "an accessor by another name": (
        "const O = Object, p = O.getPrototypeOf({});\nO.defineProperty(p,'zz',{get(){return this},configurable:true});\n"
        "return await zz.tools.secret({})"
    ),
    "a constructor": (
        "const O = ({}).constructor;\nO['define'+'Property'](O['proto'+'type'],'zz',{get(){return this},configurable:true});\n"
        "return await zz.tools.secret({})"
    ),
    "names that are computed": (
        "const k = 'constr'+'uctor', O = ({})[k], d = 'define'+'Property';\nconst f = O[d];\n"
        "f(O['proto'+'type'],'zz',{get(){return this},configurable:true});\nreturn await zz.tools.secret({})"
    ),
    "a listener": (
        "return await new Promise(r=>{addEventListener('x',function(e){r(this.tools.secret({}))});"
        "dispatchEvent(new Event('x'));setTimeout(()=>r('no'),50)})"
    ),
    "a target": (
        "return await new Promise(r=>{const t=new EventTarget();"
        "t.addEventListener.call(undefined,'x',function(e){r((e.currentTarget||this).tools.secret({}))});"
        "t.dispatchEvent.call(undefined,new Event('x'));setTimeout(()=>r('no'),50)})"
    ),
    "a class": "class A{ static async run(t){ return await t.secret({}) } }\nexport default A.run",
    "a bound function": "const f=async function(t){return await t.secret({})};\nexport default f.bind(null)",
    "a variable that is exported": "let f=(t)=>t.add({a:1});\nif(1) f=async (t)=>await t.secret({});\nexport default f",
    "a variable that is made later": "let f;\nf=async (t)=>await t.secret({});\nexport default f",
    "a proxy": "const f=new Proxy(()=>{}, { apply: (_, __, [t]) => t.secret({}) });\nexport default f",
    "a function of functions": "const make=()=>async (t)=>await t.secret({});\nconst f=make();\nexport default f",
    "a method": "const o={async run(t){return await t.secret({})}};\nexport default o.run",
    "an accessor that is exported": "module.exports={get main(){ return async t=>await t.secret({}) }}",
    "keys that are computed": "const {['to'+'ols']:q}=self;\nreturn await q.secret({})",
    "descriptors": (
        "for(const [k,v] of Object.entries(Object.getOwnPropertyDescriptors(global)))"
        " if(k==='tools') return await v.value.secret({})"
    ),
    "a function in between": "const {secret}=((x)=>x)(codemode);\nreturn await secret({})",
    "a list": "const [t]=[tools];\nreturn await t.secret({})",
    "a reflected member": "return await Reflect.get(tools,'secret')({})",
    "an assignment": "let t;\n({ secret: t } = tools);\nreturn await t({})",
    "a loop": "for (const name in tools) if (name.startsWith('sec')) return await tools[name]({})",
    "a spread": "const all={...tools};\nreturn await all.secret({})",
}
PYTHON = {
    "a default": "def main(t=tools):\n    return t.secret()\nawait main()",
    "more parameters": "async def main(*given):\n    return await tools.secret()\nawait main()",
    "a member by name": "await getattr(tools, 'sec' + 'ret')()",
    "a module by name": "import sys as s\nawait getattr(s, 'mod' + 'ules')['to' + 'ols'].secret()",
    "modules": "from sys import modules\nawait modules['to' + 'ols'].secret()",
    "a getter": "from operator import attrgetter\nimport sys\nawait attrgetter('mod' + 'ules')(sys)['to' + 'ols'].secret()",
    "an import": "t = __import__('to' + 'ols')\nawait t.secret()",
    "globals": "await globals()['to' + 'ols'].secret()",
    "a frame": (
        "try:\n    1 / 0\nexcept Exception as error:\n    found = getattr(error, '__trace' + 'back__').tb_frame\n"
        "await getattr(found, 'f_glo' + 'bals')['to' + 'ols'].secret()"
    ),
    "a closure": "def make():\n    t = tools\n    return lambda: t.secret()\nawait make()()",
    "a comprehension": "found = [t for t in (tools,)]\nawait found[0].secret()",
    "a pattern": "match tools:\n    case found:\n        await found.secret()",
    "an assignment in an expression": "if (found := tools):\n    await found.secret()",
    "several at once": "a, b = tools, 1\nawait a.secret()",
    "a class": "class A:\n    t = tools\nawait A.t.secret()",
    "a function that is given it": "async def use(t):\n    return await t.secret()\nawait use(tools)",
    "a name that is given back": "from tools import secret as found\nawait found()",
    "all names": "from tools import *\nawait secret()",
    "an argument by name": "async def use(**given):\n    return await given['t'].secret()\nawait use(t=tools)",
}
PROGRAMS: dict[Language, dict[str, str]] = {"typescript": TYPESCRIPT, "python": PYTHON}


@tool
async def secret() -> int:
    return 42


@tool
async def add(a: int) -> int:
    return a


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with Corral([secret, add], check=False) as corral:
        yield corral


@pytest.mark.parametrize("language", PROGRAMS)
async def test_what_a_program_called_is_in_its_capabilities(corral: Corral, language: Language) -> None:
    wrong = Wrong()
    for name, program in PROGRAMS[language].items():
        with wrong.case(name):
            result = await corral.execute(program, language=language)
            assert result.capabilities is not None
            assert [each.name for each in result.tool_calls] == ["secret"], (result.error, result.value)
            assert result.capabilities.any_tool or "secret" in result.capabilities.tools
    assert wrong == []


async def test_ordinary_programs_call_only_what_they_name(corral: Corral) -> None:
    wrong = Wrong()
    programs: list[tuple[Language, str]] = [
        ("typescript", "const has = Object.prototype.hasOwnProperty.call({ a: 1 }, 'a');\nreturn has"),
        ("typescript", "return Object.keys({ a: 1 }).concat(Object.entries({}).map(([key]) => key))"),
        ("typescript", "class A { constructor(readonly x: number) {} }\nreturn new A(1).constructor.name"),
        ("typescript", "export default async function run(t) { return await t.add({ a: 1 }) }"),
        ("typescript", "const main = async () => await tools.add({ a: 1 });\nexport default main"),
        ("python", "record = {'a': 1}\nfound = getattr(record, 'items', None)\nawait tools.add(a=1)"),
        ("python", "async def main():\n    return await tools.add(a=1)\nawait main()"),
    ]
    for language, program in programs:
        with wrong.case(program):
            result = await corral.execute(program, language=language)
            assert result.status == "succeeded", result.error
            assert result.capabilities is not None
            assert not result.capabilities.any_tool
            assert "secret" not in result.capabilities.tools
    assert wrong == []
