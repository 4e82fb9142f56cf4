"""Uses of every part of the language, the platform, node and Python's library that programs get, by its name."""

from __future__ import annotations

__all__ = ["NODE", "PYTHON", "PYTHON_HEAD", "TYPESCRIPT"]

FORM = "(() => { const f = new FormData(); f.set('a', 'b\\n'); f.set('c', new Blob(['x']), 'y'); return f; })()"

TYPESCRIPT = {
    "Object": "[Object.keys({ b: 1, a: 2, 1: 3 }), Object.groupBy([1, 2], (x) => x)]",
    "Function": "(function f() {}).toString()",
    "Array": "[[3, 1, 2].sort(() => Math.random() - 0.5), await Array.fromAsync([1, Promise.resolve(2)])]",
    "Number": "(0.1 + 0.2).toFixed(20)",
    "parseFloat": "parseFloat('1.5')",
    "parseInt": "parseInt('12')",
    "Infinity": "`${Infinity}`",
    "NaN": "`${NaN}`",
    "undefined": "typeof undefined",
    "Boolean": "Boolean(1)",
    "String": "['a'.localeCompare('B'), 'ä'.normalize('NFD').length]",
    "Symbol": "Symbol('x').toString()",
    "Date": "[Date.now(), new Date().toISOString(), `${Date()}`, new Date(0).getTimezoneOffset(), new Date().toLocaleString(), new (class D extends Date {})().getTime(), new Date() instanceof Date, new Date().constructor === Date]",
    "Promise": "await (async () => { const o = []; await Promise.all([tools.get({ key: 'p' }).then(() => o.push(1)), crypto.subtle.digest('SHA-256', new Uint8Array(100000)).then(() => o.push(2)), crypto.subtle.digest('SHA-1', new Uint8Array(10)).then(() => o.push(3)), new Promise((r) => setTimeout(r, 1)).then(() => o.push(4))]); return o; })()",
    "RegExp": "'aXbX'.replace(/X/g, () => `${Math.random()}`)",
    "Error": "new Error('x').stack",
    "AggregateError": "new AggregateError([new Error('x')], 'y').errors.length",
    "EvalError": "new EvalError('x').message",
    "RangeError": "(() => { let n = 0; const f = () => { n++; f(); }; try { f(); } catch (e) { return [e.name, n > 1000]; } })()",
    "ReferenceError": "(() => { try { return nope; } catch (e) { return e.message; } })()",
    "SyntaxError": "(() => { try { JSON.parse('{'); } catch (e) { return e.message; } })()",
    "TypeError": "(() => { try { null.x; } catch (e) { return e.message; } })()",
    "URIError": "(() => { try { decodeURI('%'); } catch (e) { return e.message; } })()",
    "SuppressedError": "typeof SuppressedError",
    "DisposableStack": "(() => { const o = []; { using s = new DisposableStack(); s.defer(() => o.push(1)); } return o; })()",
    "AsyncDisposableStack": "await (async () => { const s = new AsyncDisposableStack(); let n = 0; s.defer(() => { n++; }); await s.disposeAsync(); return n; })()",
    "globalThis": "Object.getOwnPropertyNames(globalThis).length",
    "JSON": "JSON.stringify({ a: [1, undefined] })",
    "Math": "[Math.random(), Math.random(), Math.sin(1e10), Math.pow(1.1, 33)]",
    "Intl": "[new Intl.DateTimeFormat('en', { dateStyle: 'full', timeStyle: 'full' }).format(), new Intl.DateTimeFormat('en', { timeStyle: 'full' }).formatToParts().map((x) => x.value).join(''), Intl.DateTimeFormat().resolvedOptions(), new Intl.RelativeTimeFormat('en').format(1, 'day')]",
    "ArrayBuffer": "[new Uint8Array(new ArrayBuffer(4))]",
    "Uint8Array": "new Uint8Array([1, 2]).toBase64()",
    "Int8Array": "[...new Int8Array([300])]",
    "Uint16Array": "[...new Uint16Array([70000])]",
    "Int16Array": "[...new Int16Array([70000])]",
    "Uint32Array": "[...new Uint32Array(new Uint8Array([1, 2, 3, 4]).buffer)]",
    "Int32Array": "[...new Int32Array([-1])]",
    "BigUint64Array": "`${new BigUint64Array([1n])}`",
    "BigInt64Array": "`${new BigInt64Array([1n])}`",
    "Uint8ClampedArray": "[...new Uint8ClampedArray([300])]",
    "Float16Array": "[...new Float16Array([0.1])]",
    "Float32Array": "[...new Float32Array([0.1])]",
    "Float64Array": "[...new Float64Array([0.1])]",
    "DataView": "new DataView(new Uint8Array([1, 2]).buffer).getUint16(0)",
    "Map": "[...new Map([[{}, 1], [{}, 2]])].map((x) => x[1])",
    "BigInt": "`${2n ** 100n}`",
    "Set": "[...new Set(['b', 'a']).union(new Set(['c']))]",
    "Iterator": "Iterator.from([1, 2]).map((x) => x + 1).toArray()",
    "WeakMap": "(() => { const k = {}; return new WeakMap([[k, 1]]).get(k); })()",
    "WeakSet": "(() => { const k = {}; return new WeakSet([k]).has(k); })()",
    "WeakRef": "await (async () => { const refs = []; for (let i = 0; i < 200; i++) refs.push(new WeakRef({ i, big: new Array(1000).fill(i) })); await tools.get({ key: 'w' }); const j = []; for (let i = 0; i < 30000; i++) j.push({ i }); return refs.filter((r) => r.deref() === undefined).length; })()",
    "FinalizationRegistry": "await (async () => { let n = 0; const f = new FinalizationRegistry(() => n++); for (let i = 0; i < 5000; i++) f.register({ i, a: new Array(20).fill(i) }, i); for (let i = 0; i < 3; i++) await tools.get({ key: 'f' }); return n; })()",
    "Proxy": "new Proxy({}, { get: (_, k) => k }).abc",
    "Reflect": "Reflect.ownKeys({ b: 1, [Symbol.iterator]: 2 }).length",
    "Temporal": "[`${Temporal.Now.instant()}`, `${Temporal.Now.zonedDateTimeISO()}`, `${Temporal.Now.plainDateTimeISO()}`, `${Temporal.Now.plainDateISO()}`, `${Temporal.Now.plainTimeISO()}`, Temporal.Now.timeZoneId()]",
    "decodeURI": "decodeURI('%20')",
    "decodeURIComponent": "decodeURIComponent('%20')",
    "encodeURI": "encodeURI(' ')",
    "encodeURIComponent": "encodeURIComponent(' ')",
    "escape": "escape(' ')",
    "unescape": "unescape('%20')",
    "eval": "(() => { try { return (0, eval)('1'); } catch (e) { return e.name; } })()",
    "isFinite": "isFinite(1)",
    "isNaN": "isNaN(1)",
    "console": "await (async () => { console.time('a'); await tools.get({ key: 'c' }); console.timeEnd('a'); console.log(new Date(), new Map([[1, 2]])); return 1; })()",
    "queueMicrotask": "await new Promise((r) => queueMicrotask(() => r(1)))",
    "structuredClone": "structuredClone({ a: [new Date()] })",
    "atob": "atob('eA==')",
    "btoa": "btoa('x')",
    "TextEncoder": "[...new TextEncoder().encode('ä')]",
    "TextDecoder": "new TextDecoder().decode(new Uint8Array([195, 164]))",
    "URL": "[new URL('a?b', 'http://c').href, (() => { try { return URL.createObjectURL(new Blob(['x'])); } catch (e) { return e.message; } })()]",
    "URLSearchParams": "`${new URLSearchParams({ a: 'b' })}`",
    "URLPattern": "new URLPattern({ pathname: '/:x' }).exec('http://a/b').pathname.groups.x",
    "performance": "[performance.now(), performance.timeOrigin, performance.toJSON(), performance.mark('x').startTime, performance.measure('y', 'x').duration]",
    "DOMException": "new DOMException('x', 'AbortError').code",
    "Event": "new Event('x').timeStamp",
    "EventTarget": "(() => { let n = 0; const t = new EventTarget(); t.addEventListener('x', () => n++); t.dispatchEvent(new Event('x')); return n; })()",
    "CustomEvent": "new CustomEvent('x', { detail: 1 }).timeStamp",
    "Headers": "[...new Headers({ b: '1', a: '2' })]",
    "FormData": f"await (async () => {{ const r = new Response({FORM}); return [r.headers.get('content-type'), await r.text()]; }})()",
    "setTimeout": "await new Promise((r) => { const o = []; setTimeout(() => o.push('a'), 3); setTimeout(() => o.push('b'), 2); setTimeout(() => { o.push(performance.now()); r(o); }, 8); })",
    "setInterval": "await new Promise((r) => { let n = 0; const i = setInterval(() => { if (++n === 3) { clearInterval(i); r(performance.now()); } }, 1); })",
    "setImmediate": "await new Promise((r) => { const o = []; setImmediate(() => { o.push(1); r(o); }); queueMicrotask(() => o.push(0)); })",
    "clearTimeout": "await new Promise((r) => { const t = setTimeout(() => r('wrong'), 1); clearTimeout(t); setTimeout(() => r('right'), 2); })",
    "clearInterval": "clearInterval(setInterval(() => {}, 1)) ?? 'cleared'",
    "clearImmediate": "clearImmediate(setImmediate(() => {})) ?? 'cleared'",
    "AbortController": "(() => { const c = new AbortController(); c.abort(); return c.signal.reason.name; })()",
    "AbortSignal": "await new Promise((r) => { const s = AbortSignal.any([AbortSignal.timeout(3), AbortSignal.timeout(5000)]); s.addEventListener('abort', (e) => r([s.reason.name, e.timeStamp])); })",
    "crypto": "[crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(8))], await crypto.subtle.generateKey('AES-GCM', true, []).catch((e) => e.message)]",
    "Crypto": "typeof crypto === 'object' && crypto instanceof Crypto",
    "CryptoKey": "await crypto.subtle.importKey('raw', new Uint8Array(16), 'AES-GCM', true, ['encrypt']).then(async (k) => [k instanceof CryptoKey, new Uint8Array(await crypto.subtle.encrypt({ name: 'AES-GCM', iv: crypto.getRandomValues(new Uint8Array(12)) }, k, new Uint8Array(3))).toHex()])",
    "SubtleCrypto": "await Promise.all(['SHA-512', 'SHA-1'].map((a) => crypto.subtle.digest(a, new Uint8Array(1)).then((b) => new Uint8Array(b)[0])))",
    "Blob": "[await new Blob(['abc']).text(), (await Array.fromAsync(new Blob(['abc']).stream())).length]",
    "File": f"[new File(['a'], 'a').lastModified, new File(['a'], 'a', {{ lastModified: 5 }}).lastModified, {FORM}.get('c').lastModified]",
    "FileReader": "(() => { try { return new FileReader(); } catch (e) { return e.message; } })()",
    "Request": f"[await new Request('http://a/', {{ method: 'POST', body: {FORM} }}).text(), new Request('http://a/b').url]",
    "Response": "[await new Response('x').text(), await Response.json({ a: 1 }).json()]",
    "ReadableStream": "await Array.fromAsync(new ReadableStream({ start(c) { c.enqueue(1); c.enqueue(2); c.close(); } }))",
    "ReadableStreamDefaultReader": "await new Blob(['a']).stream().getReader().read().then((x) => x.done)",
    "ReadableStreamBYOBReader": "typeof ReadableStreamBYOBReader",
    "WritableStream": "await (async () => { const o = []; const w = new WritableStream({ write: (x) => void o.push(x) }).getWriter(); await w.write(1); await w.close(); return o; })()",
    "WritableStreamDefaultWriter": "typeof WritableStreamDefaultWriter",
    "TransformStream": "await (async () => { const { readable, writable } = new TransformStream(); const w = writable.getWriter(); void w.write(1); void w.close(); return await Array.fromAsync(readable); })()",
    "ByteLengthQueuingStrategy": "new ByteLengthQueuingStrategy({ highWaterMark: 1 }).highWaterMark",
    "CountQueuingStrategy": "new CountQueuingStrategy({ highWaterMark: 1 }).highWaterMark",
    "TextDecoderStream": "await Array.fromAsync(new Blob(['abc']).stream().pipeThrough(new TextDecoderStream()))",
    "TextEncoderStream": "await Array.fromAsync(new Blob(['abc']).stream().pipeThrough(new TextDecoderStream()).pipeThrough(new TextEncoderStream())).then((x) => x.length)",
    "CompressionStream": "new Uint8Array(await new Response(new Blob(['x'.repeat(9999)]).stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer()).toHex()",
    "DecompressionStream": "(await new Response(new Blob(['x'.repeat(9999)]).stream().pipeThrough(new CompressionStream('deflate')).pipeThrough(new DecompressionStream('deflate'))).text()).length",
    "MessageChannel": "(() => { try { return new MessageChannel(); } catch (e) { return e.message; } })()",
    "MessagePort": "typeof MessagePort",
    "MessageEvent": "new MessageEvent('x', { data: 1 }).timeStamp",
    "Buffer": "[Buffer.from('x').toString('hex'), Buffer.allocUnsafe(16).length]",
    "depth of the stack": "(() => { let n = 0; const f = () => { n++; f(); }; try { f(); } catch {} return n; })()",
}  # fmt: skip
"""Expressions by the global that they use; other names are those of the list in the documentation."""

NODE = {
    "assert": "(() => { try { m.strictEqual(1, 2); } catch (e) { return e.name; } })()",
    "assert/strict": "typeof m.equal",
    "async_hooks": "await new m.AsyncLocalStorage().run(5, async () => { await tools.get({ key: 'a' }); return 1; })",
    "buffer": "m.Buffer.alloc(2).toString('hex')",
    "console": "typeof m.log",
    "constants": "typeof m",
    "crypto": "[m.randomBytes(4).toString('hex'), m.randomInt(1e9), m.randomUUID(), [...m.randomFillSync(new Uint8Array(4))], [...m.webcrypto.getRandomValues(new Uint8Array(4))], m.createHash('sha256').update('a').digest('hex'), await new Promise((r) => m.scrypt('a', 'b', 8, (e, b) => r(b.toString('hex')))), await new Promise((r) => m.randomBytes(4, (e, b) => r(b.toString('hex')))), await new Promise((r) => m.pbkdf2('a', 'b', 1, 8, 'sha256', (e, b) => r(b.toString('hex')))), (() => { try { m.generateKeyPairSync('ed25519'); } catch (e) { return e.message; } })()]",
    "diagnostics_channel": "typeof m.channel",
    "events": "await (async () => { const e = new m.EventEmitter(); setTimeout(() => e.emit('x', 5), 2); return await m.once(e, 'x'); })()",
    "os": "Object.keys(m).length",
    "path": "m.join('a', '..', 'b')",
    "path/posix": "m.join('a', 'b')",
    "path/win32": "m.join('a', 'b')",
    "perf_hooks": "[m.performance.now(), m.performance.timeOrigin]",
    "punycode": "m.encode('ä')",
    "querystring": "m.stringify({ a: 1 })",
    "stream": "[await m.Readable.from([1, 2, 3]).toArray(), await new Promise((r) => m.Readable.from(['a']).on('data', (d) => r(`${d}`)))]",
    "stream/consumers": "await m.text((await import('node:stream')).Readable.from(['a', 'b']))",
    "stream/promises": "await (async () => { const { Readable, Transform } = await import('node:stream'); const out = []; await m.pipeline(Readable.from(['a', 'b']), new Transform({ transform(c, e, cb) { out.push(`${c}`); cb(); } })); return out; })()",
    "stream/web": "typeof m.ReadableStream",
    "string_decoder": "new m.StringDecoder('utf8').write(Buffer.from('a'))",
    "timers": "await new Promise((r) => m.setTimeout(() => r(Date.now()), 3))",
    "timers/promises": "[await m.setTimeout(3, 'x'), await m.setImmediate(1), await m.scheduler.wait(1) ?? 2, await m.setTimeout(1, 0, { signal: AbortSignal.abort() }).catch((e) => e.name)]",
    "url": "m.fileURLToPath('file:///a')",
    "util": "[m.inspect({ a: [1] }), await m.promisify((a, cb) => cb(null, a))(2)]",
    "util/types": "m.isDate(new Date())",
    "zlib": "[m.gzipSync('aaaa').toString('hex'), await new Promise((r) => m.gzip('aaaa', (e, b) => r(b.toString('hex'))))]",
    "process": "[process.hrtime(), process.uptime(), await new Promise((r) => process.nextTick(() => r(1)))]",
}  # fmt: skip
"""Expressions that use a built-in module `m`."""

PYTHON_HEAD = """
import asyncio, array, base64, bisect, calendar, collections, concurrent.futures, contextlib, copy, csv, ctypes, dataclasses
import datetime, decimal, difflib, email.utils, enum, fractions, functools, gc, gzip, hashlib, heapq, html, io, itertools, json
import linecache, logging, math, operator, os, pathlib, pprint, queue, random, re, resource, sched, secrets, signal, sqlite3
import statistics, string, sys, tempfile, textwrap, threading, time, traceback, types, typing, unicodedata, urllib.parse, uuid
import weakref, zipfile, zoneinfo
from datetime import datetime as imported
class Thing:
    def __init__(self, n): self.n = n
class Color(enum.Enum): RED = 1; GREEN = 2; BLUE = 3; PINK = 4
@dataclasses.dataclass
class Point: x: int
def zipped():
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w") as z: z.writestr("a", "b")
    return b.getvalue()
def pooled():
    with concurrent.futures.ThreadPoolExecutor(4) as p:
        fs = [p.submit(lambda i=i: (time.sleep(random.random() / 200), i)[1]) for i in range(4)]
        return [f.result() for f in concurrent.futures.as_completed(fs)], list(p.map(abs, [-1])), len(concurrent.futures.wait(fs).done)
async def completed():
    async def one(i): return await tools.get(key=str(i))
    return [await f for f in asyncio.as_completed([one(i) for i in range(5)])]
async def waited():
    done, _ = await asyncio.wait([asyncio.ensure_future(tools.get(key=str(i))) for i in range(5)])
    return [t.result() for t in done]
async def timed():
    o = []
    async def s(ms):
        await asyncio.sleep(ms / 1000); o.append(ms)
    await asyncio.gather(s(3), s(1), s(2)); o.append(time.monotonic()); return o
async def limited():
    try:
        async with asyncio.timeout(0.001): await asyncio.sleep(60)
    except TimeoutError: return time.time()
def refused(f, *a):
    try: return f(*a)
    except BaseException as e: return str(e)
out = {}
"""

PYTHON = {
    "array": "array.array('i', [1])",
    "asyncio": "[await completed(), await waited(), await timed(), await limited(), await asyncio.to_thread(os.urandom, 2), await asyncio.get_running_loop().run_in_executor(None, os.urandom, 2), asyncio.get_running_loop().time(), [t.get_name() for t in {asyncio.ensure_future(asyncio.sleep(0)) for _ in range(20)}]]",
    "base64": "base64.b64encode(b'a')",
    "bisect": "bisect.bisect([1, 2], 1)",
    "calendar": "calendar.timegm(time.gmtime())",
    "collections": "collections.Counter('abca')",
    "concurrent.futures": "pooled()",
    "contextlib": "contextlib.nullcontext(1).enter_result",
    "copy": "copy.deepcopy([Point(1)])",
    "csv": "list(csv.reader(['a,b']))",
    "dataclasses": "Point(1)",
    "datetime": "[datetime.datetime.now(), datetime.datetime.utcnow(), datetime.date.today(), datetime.datetime.now(datetime.timezone.utc), datetime.datetime.today(), imported.now()]",
    "decimal": "decimal.Decimal(1) / 3",
    "difflib": "difflib.get_close_matches('ab', ['abc'])",
    "email": "[email.utils.make_msgid(domain='x'), email.utils.formatdate()]",
    "enum": "[m.name for m in set(Color)]",
    "fractions": "fractions.Fraction(1, 3)",
    "functools": "functools.reduce(lambda a, b: a + b, [1, 2])",
    "gzip": "gzip.compress(b'x')",
    "hash of text": "[hash('a'), hash(b'a'), hash(1.5), {*'hello world'}, list({'a', 'b', 'c'})]",
    "hash of objects": "[x.n for x in {Thing(i) for i in range(20)}]",
    "hashlib": "hashlib.sha256(b'a').hexdigest()",
    "heapq": "heapq.nsmallest(1, [2, 1])",
    "html": "html.escape('<')",
    "io": "io.StringIO('a').read()",
    "itertools": "list(itertools.permutations('ab'))",
    "json": "json.dumps({'a': 1})",
    "linecache": "linecache.getline('x', 1)",
    "logging": "logging.makeLogRecord({}).created",
    "math": "math.sin(1e10)",
    "operator": "operator.add(1, 2)",
    "os": "[os.urandom(4), os.getrandom(4), os.getpid(), os.getppid(), os.times(), dict(os.environ), os.getcwd()]",
    "pathlib": "pathlib.PurePath('a') / 'b'",
    "pprint": "pprint.pformat({'a': 1})",
    "queue": "queue.Queue().qsize()",
    "random": "[random.random(), random.randint(0, 10**9), random.Random().random(), random.SystemRandom().random(), random.sample(range(99), 3)]",
    "re": "re.findall('a', 'aa')",
    "repr of objects": "[Thing(1), {Thing(2): 1}]",
    "sched": "sched.scheduler().timefunc()",
    "secrets": "[secrets.token_hex(4), secrets.randbelow(10**9), secrets.choice('abcdef')]",
    "signal": "refused(signal.alarm, 1)",
    "statistics": "statistics.mean([1, 2])",
    "string": "string.Template('$a').substitute(a=1)",
    "tempfile": "next(tempfile._get_candidate_names())",
    "textwrap": "textwrap.shorten('a b c', 4)",
    "threading": "[threading.get_ident(), threading.current_thread().name, threading.main_thread().native_id, refused(threading.Thread(target=print).start), refused(threading.Timer(1, print).start)]",
    "time": "[time.time(), time.time_ns(), time.monotonic(), time.perf_counter(), time.process_time(), time.thread_time(), time.localtime(), time.gmtime(), time.ctime(), time.asctime(), time.strftime('%X'), time.clock_gettime(time.CLOCK_REALTIME), time.clock_gettime(time.CLOCK_BOOTTIME), time.sleep(0.001), time.monotonic_ns()]",
    "traceback": "refused(traceback.format_stack)",
    "types": "types.SimpleNamespace(a=1)",
    "typing": "typing.get_type_hints(Point)",
    "unicodedata": "unicodedata.name('a')",
    "urllib.parse": "urllib.parse.quote(' ')",
    "uuid": "[uuid.uuid1(), uuid.uuid4(), uuid.getnode()]",
    "weakref": "weakref.ref(Thing(1))() is None",
    "zipfile": "zipped()",
    "zoneinfo": "datetime.datetime.now(zoneinfo.ZoneInfo('Europe/Oslo'))",
    "id": "[id(object()), id(Thing)]",
    "repr of functions": "[lambda: 0, object()]",
    "hash(None)": "hash(None)",
    "hash of classes and functions": "[hash(Thing), hash(pooled)]",
    "gc": "len(gc.get_objects())",
    "sys.getrefcount": "sys.getrefcount(None)",
    "resource": "resource.getrusage(resource.RUSAGE_SELF)",
    "sqlite3": "sqlite3.connect(':memory:').execute(\"select random(), datetime('now')\").fetchone()",
    "ctypes": "[ctypes.CDLL(None).time(None), ctypes.addressof(ctypes.c_int())]",
}  # fmt: skip
"""Expressions by the module that they use; other names are those of the list in the documentation."""
