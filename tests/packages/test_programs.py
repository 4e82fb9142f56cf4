"""Programs that import packages of npm, each really installed, in the forms that models write."""

from __future__ import annotations

from typing import Any

import pytest

from corral import ConfigError, Corral, Limits
from corral.packages import NpmPackages
from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.foreign import PACKAGES
from tests.packages.conftest import add

pytestmark = pytest.mark.anyio
other_jail = pytest.mark.matrix("each tier and `fork` are in the gate; another pair, or a process of its own")

PROGRAMS: dict[str, tuple[str, Any]] = {
    "jszip as a namespace": (
        """
import * as JSZip from "jszip";
const zip = new JSZip();
zip.file("a.txt", "hello");
zip.folder("d")!.file("b.bin", new Uint8Array([1, 2, 3]));
const packed = await zip.generateAsync({ type: "nodebuffer", compression: "DEFLATE" });
const back = await JSZip.loadAsync(packed);
return [Object.keys(back.files), await back.file("a.txt")!.async("string")];
""",
        [["a.txt", "d/", "d/b.bin"], "hello"],
    ),
    "jszip by default": ('import JSZip from "jszip"; return typeof new JSZip().file;', "function"),
    "jszip required": ('const JSZip = require("jszip"); return typeof new JSZip().file;', "function"),
    "jszip imported later": (
        'const { default: JSZip } = await import("jszip"); return typeof new JSZip().file;',
        "function",
    ),
    "docx": (
        """
import { Document, Packer, Paragraph, TextRun } from "docx";
import JSZip from "jszip";
const runs = [new TextRun("Hello"), new TextRun({ text: " bold", bold: true })];
const document = new Document({ sections: [{ children: [new Paragraph({ children: runs })] }] });
const packed = await JSZip.loadAsync(await Packer.toBuffer(document));
return (await packed.file("word/document.xml")!.async("string")).includes("Hello");
""",
        True,
    ),
    "xlsx": (
        """
import * as XLSX from "xlsx";
const book = XLSX.utils.book_new();
XLSX.utils.book_append_sheet(book, XLSX.utils.json_to_sheet([{ a: 1, b: "x" }]), "S");
const back = XLSX.read(XLSX.write(book, { type: "buffer", bookType: "xlsx" }));
return XLSX.utils.sheet_to_json(back.Sheets.S);
""",
        [{"a": 1, "b": "x"}],
    ),
    "lodash by default": (
        'import _ from "lodash"; return _.groupBy([1, 2, 3], (each) => (each % 2 ? "odd" : "even"));',
        {"odd": [1, 3], "even": [2]},
    ),
    "lodash by names": ('import { chunk, sumBy as total } from "lodash"; return chunk([1, 2, 3], 2);', [[1, 2], [3]]),
    "a module of lodash": ('import chunk from "lodash/chunk"; return chunk([1, 2, 3], 2);', [[1, 2], [3]]),
    "date-fns": (
        'import { format, addDays } from "date-fns"; return format(addDays(new Date(2026, 0, 1), 3), "yyyy-MM-dd");',
        "2026-01-04",
    ),
    "zod": (
        'import { z } from "zod"; return z.object({ a: z.number() }).safeParse({ a: "x" }).success;',
        False,
    ),
    "papaparse": (
        'import Papa from "papaparse"; return Papa.parse("a,b\\n1,2", { header: true }).data;',
        [{"a": "1", "b": "2"}],
    ),
    "pdf-lib": (
        """
import { PDFDocument, StandardFonts } from "pdf-lib";
const pdf = await PDFDocument.create();
pdf.addPage().drawText("hi", { font: await pdf.embedFont(StandardFonts.Helvetica) });
return (await PDFDocument.load(await pdf.save())).getPageCount();
""",
        1,
    ),
    "exceljs": (
        """
import ExcelJS from "exceljs";
const book = new ExcelJS.Workbook();
book.addWorksheet("A").addRow([1, "x"]);
const again = new ExcelJS.Workbook();
await again.xlsx.load(await book.xlsx.writeBuffer());
return again.getWorksheet("A")!.getCell("B1").value;
""",
        "x",
    ),
    "uuid": (
        'const { v4, v7, validate } = require("uuid"); return [validate(v4()), validate(v7())];',
        [True, True],
    ),
    "marked": (
        'import { marked } from "marked"; return marked.parse("# hi **x**");',
        "<h1>hi <strong>x</strong></h1>\n",
    ),
    "a default that a package does not have": ('import marked from "marked"; return marked.parse("x");', "<p>x</p>\n"),
    "cheerio": (
        """
import * as cheerio from "cheerio";
const $ = cheerio.load("<h2 class=t>Hello</h2>");
$("h2").text("x");
return $("body").html();
""",
        '<h2 class="t">x</h2>',
    ),
    "modules of node": (
        """
import path from "path";
import { createHash } from "node:crypto";
import * as zlib from "zlib";
import { Readable } from "stream";
import util from "util";
const chunks = [];
for await (const chunk of Readable.from(["a", "b"])) chunks.push(chunk);
const packed = await util.promisify(zlib.gzip)("hi");
const hash = createHash("sha256").update("x").digest("hex").slice(0, 8);
return [path.join("a", "b"), hash, zlib.gunzipSync(packed).toString(), chunks, process.cwd()];
""",
        ["a/b", "2d711642", "hi", ["a", "b"], "/"],
    ),
    "a tool beside": (
        'import _ from "lodash"; return _.sum([await tools.add({ a: 1, b: 2 }), 3]);',
        6,
    ),
    "two in turn": (
        """
const first = (await import("lodash")).default, second = (await import("lodash")).default;
return first === second && require("lodash") === first;
""",
        True,
    ),
}


FIRST = (
    "lodash by names",
    "a module of lodash",
    "a default that a package does not have",
    "modules of node",
    "a tool beside",
    "two in turn",
)
"""Of the gate: each form of an import, and what is no package."""


@pytest.mark.parametrize(
    "name",
    [
        *FIRST,
        *(
            pytest.param(name, marks=pytest.mark.matrix("other packages, in forms of imports that tests/programs has"))
            for name in PROGRAMS
            if name not in FIRST
        ),
    ],
)
async def test_a_program_imports_a_package(corral: Corral, name: str) -> None:
    program, expected = PROGRAMS[name]
    result = await corral.execute(program)
    assert (result.error, result.value) == (None, expected)
    assert result.checked
    assert not result.diagnostics


WITHOUT_STREAMS = sorted(PROGRAMS.keys() - {"modules of node"})


@pytest.mark.matrix("the same programs and packages in WebAssembly")
async def test_programs_in_webassembly_import_packages() -> None:
    packages = NpmPackages(PACKAGES)
    limits = Limits(cpu_seconds=60, wall_seconds=120)
    async with Corral([add], sandbox={"typescript": "wasm"}, packages=packages, check=False, limits=limits) as corral:
        for name in WITHOUT_STREAMS:
            result = await corral.execute(PROGRAMS[name][0])
            assert (name, result.error, result.value) == (name, None, PROGRAMS[name][1])
        result = await corral.execute(
            'import { sumBy } from "lodash"; import path from "path"; import zlib from "zlib";\n'
            "const names = [path.join('a', '..', 'b.c'), path.extname('x.tar.gz'), path.relative('/a/b', '/a/c')];\n"
            "try { sumBy([1], () => { throw new Error('own') }) } catch (error) { names.push(error.stack.split('\\n').length) }\n"
            "try { zlib.gzipSync('x') } catch (error) { names.push(error.message) }\nreturn names"
        )
        assert result.error is None
        lacking = 'module "zlib" is not available to programs: zlib.gzipSync() was not done; this engine lacks it'
        assert result.value[:3] == ["b.c", ".gz", "../c"]
        assert result.value[3] == 3  # its message and two frames of its own
        assert result.value[4].startswith(lacking)


UNKNOWN = (
    'module "axios" is not available: programs may import cheerio, date-fns, docx, exceljs, jszip, lodash, marked, '
    'papaparse, pdf-lib, uuid, xlsx, zod, and parts of node such as "path" and "crypto"; the host allows more with '
    "Corral(packages=NpmPackages(...))"
)


async def test_an_unknown_package_is_an_error_that_names_the_allowed_ones(corral: Corral) -> None:
    for load in ('await import("axios")', 'require("axios")', 'await import("ax" + "ios")'):
        result = await corral.execute(f"try {{ {load} }} catch (error) {{ return [error.code, error.message]; }}")
        assert result.value == ["MODULE_NOT_FOUND", UNKNOWN]


async def test_a_package_whose_name_is_computed_is_to_be_written_out(corral: Corral) -> None:
    result = await corral.execute('return await import("lod" + "ash").catch((error) => error.message);')
    assert result.value == (
        'module "lodash" was not loaded: write its name as a literal string in `import ... from`, `await import(...)` or '
        "`require(...)`"
    )


async def test_a_module_that_a_package_does_not_have_is_an_error_with_the_reason(corral: Corral) -> None:
    result = await corral.execute('return await import("lodash/none").catch((error) => error.message);')
    assert result.value == 'module "lodash/none" cannot be loaded: Could not resolve "lodash/none" (<stdin>:1)'


async def test_what_reaches_outside_refuses_when_it_is_used_and_not_when_it_is_loaded(corral: Corral) -> None:
    result = await corral.execute("""
import { exec } from "child_process";
const http = require("http");
class Agent extends http.Agent {}
const said = [];
new Agent({ keepAlive: true });
for (const use of [() => exec("ls"), () => http.createServer(), () => new http.Server()]) {
  try { use(); } catch (error) { said.push(error.message); }
}
return said;
""")
    assert result.value == [
        'module "child_process" is not available to programs: child_process.exec() was not done',
        'module "http" is not available to programs: http.createServer() was not done',
        'module "http" is not available to programs: http.Server() was not done',
    ]


async def test_forked_processes_draw_different_random_numbers_from_modules(corral: Corral) -> None:
    program = 'import { v4 } from "uuid"; import { randomBytes } from "crypto"; return [v4(), randomBytes(8).toString("hex")];'
    first, second, third = [(await corral.execute(program)).value for _ in range(3)]
    assert len({*first, *second, *third}) == 6


@pytest.mark.parametrize(
    ("tier", "isolation"),
    [
        ("landlock", "fork"),
        pytest.param("namespaces", "process", marks=other_jail),
        pytest.param("landlock", "process", marks=other_jail),
    ],
)
async def test_packages_are_loaded_in_other_jails_too(tier: Any, isolation: Any) -> None:
    sandbox = DenoSandbox(tier=tier, isolation=isolation, pool_size=0)
    corral = Corral(sandbox=sandbox, check=False, packages=NpmPackages(PACKAGES, allow=["jszip"]))
    result = await corral.execute(PROGRAMS["jszip as a namespace"][0])
    assert (result.error, result.value, result.containment) == (None, PROGRAMS["jszip as a namespace"][1], tier)
    await corral.aclose()


async def test_only_what_is_allowed_may_be_imported() -> None:
    corral = Corral(check=False, packages=NpmPackages(PACKAGES, allow=["uuid"]))
    result = await corral.execute('return await import("jszip").catch((error) => error.message);')
    assert "programs may import uuid, and parts of node" in result.value
    await corral.aclose()


async def test_without_packages_a_program_has_neither_require_nor_process() -> None:
    corral = Corral(check=False)
    result = await corral.execute('return [typeof require, typeof process, await import("path").catch(() => "none")];')
    assert result.value == ["undefined", "undefined", "none"]
    await corral.aclose()


async def test_programs_in_python_run_beside_packages() -> None:
    corral = Corral(
        check=False, sandbox={"python": CPythonSandbox(), "typescript": "deno"}, packages=NpmPackages(PACKAGES)
    )
    assert (await corral.execute("1 + 1", language="python")).value == 2
    await corral.aclose()


def test_allowing_what_is_not_installed_is_wrong_set_up() -> None:
    with pytest.raises(ConfigError, match=r"there is no package 'jzip' in .*; did you mean 'jszip'\?"):
        NpmPackages(PACKAGES, allow=["jzip"])


async def test_a_check_takes_the_types_of_packages_and_never_rejects_for_them(corral: Corral) -> None:
    program = (
        'import * as XLSX from "xlsx"; import { Nope } from "docx"; new Nope(); const x = XLSX.utils.nope(); return x;'
    )
    found = await corral.check(program)
    assert (found.passed, found.checked) == (True, True)
    assert [each.message for each in found.diagnostics] == [
        "Module '\"docx\"' has no exported member 'Nope'.",
        "Property 'nope' does not exist on type 'XLSX$Utils'.",
    ]


async def test_a_package_that_is_not_imported_is_said_to_be_so(corral: Corral) -> None:
    found = await corral.check("return z.object({});")
    assert [each.message for each in found.diagnostics] == ["Cannot find name 'z'. It is not imported."]


def test_the_model_is_told_which_packages_there_are() -> None:
    corral = Corral(packages=NpmPackages(PACKAGES, allow=["uuid", "jszip"]))
    for text in (corral.model.prompt(), corral.model.tools()[0].description):
        assert "You may import `jszip`, `uuid` and parts of node such as `path`, `stream` and `zlib`." in text
        assert "no imports" not in text
    assert "`jszip`" not in corral.model.prompt(language="python")
    assert "No imports, network or files." in Corral().model.prompt()
