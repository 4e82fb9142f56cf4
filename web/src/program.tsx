import { memo, useCallback, useEffect, useMemo, useState } from "react";
import { type Call, type Execution, type Group, request, root, serverNow } from "./api";
import { Code } from "./code";
import { Copy } from "./copy";
import { Icon } from "./icon";

export const STATUS: Record<string, string> = {
  writing: "is being written",
  running: "runs",
  waiting: "waits for you",
  succeeded: "succeeded",
  failed: "failed",
  rejected: "was rejected",
  timed_out: "timed out",
  cancelled: "was stopped",
  interrupted: "was interrupted",
  paused: "is paused",
  rolled_back: "was rolled back",
};

const HEADINGS: Record<string, string> = {
  writing: "Writing a program",
  running: "Running a program",
  succeeded: "Ran a program",
};

/** The inside of one program. */
export const Program = memo(function Program({ execution, alone }: { execution: Execution; alone?: boolean }) {
  const [whole, setWhole] = useState<Execution>();
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState<boolean>();
  const shown = whole && !isLive(execution) ? whole : execution;
  const elapsed = useElapsed(shown);
  const total = Math.max(
    0.05,
    shown.duration ?? elapsed ?? 0,
    ...shown.calls.map((call) => call.started + (call.duration ?? 0)),
    ...shown.calls.map((call) => call.approval?.until ?? call.approval?.at ?? 0),
  );
  const marks = useMemo(
    () => new Map((shown.diagnostics ?? []).flatMap((each) => (each.line ? [[each.line, each.message]] : []))),
    [shown.diagnostics],
  );
  const failed = useMemo(
    () =>
      shown.error?.line
        ? { line: shown.error.line, message: `${shown.error.name}: ${shown.error.message}` }
        : undefined,
    [shown.error],
  );
  const load = useCallback(
    () =>
      void request<Execution>(`api/executions/${execution.id}`).then(setWhole, (error: Error) => setProblem(error.message)),
    [execution.id],
  );
  const isShort = !alone && !whole && !isLive(execution);
  const status = STATUS[shown.status] ?? shown.status;
  const open = chosen ?? (alone || shown.status !== "succeeded");
  return (
    <section className={open ? "program" : "program folded"} role="group" data-status={shown.status} aria-label={`Program ${status}`}>
      <header>
        <h2>
          <button type="button" className="fold" aria-expanded={open} onClick={() => setChosen(!open)}>
            <span className="dot" aria-hidden="true" />
            <span>{HEADINGS[shown.status] ?? `A program ${status}`}</span>
            <span className="facts">
              {open && `${checkText(shown)} · `}
              {open && shown.containment && `${shown.containment.kind} · `}
              {`${shown.callCount.toLocaleString("en")} ${shown.callCount === 1 ? "call" : "calls"}`}
              {shown.duration !== undefined && ` · ${duration(shown.duration)}`}
              {elapsed !== undefined && ` · ${duration(Math.max(1, Math.floor(elapsed)))}`}
            </span>
            <Icon name="chevron" />
          </button>
        </h2>
        {!alone && (
          <a href={`${root}executions/${encodeURIComponent(shown.id)}`} title="Details" aria-label="Details">
            <Icon name="open" />
          </a>
        )}
      </header>
      {open && (
        // Whoever is inside when the program ends stays there.
        <div onFocus={() => setChosen(true)}>
          <Code
            code={shown.source}
            language={shown.language}
            label="Program code"
            failed={failed}
            marks={marks}
            grows={shown.status === "writing"}
          />
          {shown.error && !shown.error.line && (
            <div className="why" role="alert">
              <b>{shown.error.name}</b>: {shown.error.message}
            </div>
          )}
          {shown.calls.length > 0 && (
            <Calls execution={shown} total={total} now={elapsed} onOpen={isShort ? load : undefined} />
          )}
          {shown.logs.length > 0 && (
            <>
              <h3>Console</h3>
              {shown.logsDropped > 0 && <p className="note">{shown.logsDropped} earlier entries are left out.</p>}
              <Console logs={shown.logs} />
            </>
          )}
          {"value" in shown && shown.value !== null && (
            <>
              <h3>Result</h3>
              <Value value={shown.value} label="Result" />
            </>
          )}
          {shown.truncated?.map((each) => (
            <p className="note" key={each}>
              {each}
            </p>
          ))}
          {shown.whole === false && !isLive(shown) && (
            <button type="button" className="quiet" onClick={load}>
              Show all of it
            </button>
          )}
          {problem && (
            <p className="why" role="alert">
              {problem}
            </p>
          )}
        </div>
      )}
      {shown.images?.map((source, index) =>
        source.startsWith("data:image/") ? <img key={index} src={source} alt={`Image ${index + 1} of the result`} /> : null,
      )}
      {shown.files && <Files files={shown.files} execution={shown.id} />}
    </section>
  );
});

interface CallsProps {
  execution: Execution;
  /** Seconds that the time line has. */
  total: number;
  /** Seconds since the program began, while it runs. */
  now?: number;
  /** Loads what the stream has shortened. */
  onOpen?: () => void;
}

/** The calls by their start: a row for each, or one for all of a tool that was called often. */
function Calls({ execution, total, now, onOpen }: CallsProps) {
  const groups = execution.groups ?? [];
  const grouped = new Map<string, Call[]>(groups.map((each) => [each.tool, []]));
  const single = execution.calls.filter((call) => !grouped.get(call.tool)?.push(call));
  const rows = useGrowing(single.length);
  const missing = execution.callCount - single.length - groups.reduce((sum, each) => sum + each.count, 0);
  const items = [...groups, ...single.slice(0, rows)].sort((one, other) => one.started - other.started);
  return (
    <>
      <h3>Calls</h3>
      {missing > 0 && <p className="note">{missing} earlier calls are left out.</p>}
      <ol className="calls" tabIndex={0} aria-label="Calls">
        {items.map((each) =>
          "density" in each ? (
            <Often key={each.tool} group={each} calls={grouped.get(each.tool)!} total={total} now={now} onOpen={onOpen} />
          ) : (
            <Row key={each.n} call={each} total={total} now={each.duration === undefined ? now : undefined} onOpen={onOpen} />
          ),
        )}
      </ol>
    </>
  );
}

const SHOWN = 5;

interface OftenProps extends Omit<CallsProps, "execution"> {
  group: Group;
  calls: Call[];
}

/** All calls of one tool in a row: how many, how long, and when. The latest that failed or say how far they are stay in sight. */
function Often({ group, calls, total, now, onOpen }: OftenProps) {
  const [open, setOpen] = useState(false);
  const rows = useGrowing(open ? calls.length : 0);
  const shown = open ? calls.slice(0, rows) : calls.filter((call) => call.error ?? call.progress).slice(-SHOWN);
  const most = Math.max(...group.density);
  const toggle = () => {
    if (!open) onOpen?.();
    setOpen(!open);
  };
  return (
    <li className="call">
      <button type="button" className="row" aria-expanded={open} onClick={toggle}>
        <span className="what">
          <b>{group.tool}</b> × {group.count.toLocaleString("en")}
          {group.failed > 0 && <em> {group.failed.toLocaleString("en")} failed</em>}
        </span>
        <svg className="bar" viewBox={`0 0 ${total} 1`} preserveAspectRatio="none" aria-hidden="true">
          {group.density.map(
            (count, index) =>
              count > 0 && <rect key={index} x={index * group.seconds} width={group.seconds} height={1} opacity={0.2 + (0.8 * count) / most} />,
          )}
        </svg>
        <span className="time">{group.shortest === null ? "…" : durations(group.shortest, group.longest)}</span>
      </button>
      {open && calls.length < group.count && (
        <p className="note">
          The latest {calls.length} of {group.count}.
        </p>
      )}
      {shown.length > 0 && (
        <ol>
          {shown.map((call) => (
            <Row key={call.n} call={call} total={total} now={call.duration === undefined ? now : undefined} onOpen={onOpen} />
          ))}
        </ol>
      )}
    </li>
  );
}

/** What the program left in its session: links to what is there, and the names of what is gone. */
function Files({ files, execution }: { files: NonNullable<Execution["files"]>; execution: string }) {
  const address = `${root}api/executions/${encodeURIComponent(execution)}/file?path=`;
  const written = [...files.created, ...files.changed];
  return (
    <>
      <h3>Files</h3>
      <ul className="files">
        {written.map((path) => (
          <li key={path}>
            <a href={address + encodeURIComponent(path)} download>
              {path}
            </a>
          </li>
        ))}
        {files.deleted.map((path) => (
          <li key={path}>
            <s>{path}</s> deleted
          </li>
        ))}
      </ul>
      {written.filter(isImage).slice(0, IMAGES_SHOWN).map((path) => (
        <SessionImage key={path} path={path} address={`${address}${encodeURIComponent(path)}&image=1`} />
      ))}
    </>
  );
}

const IMAGES_SHOWN = 8;
const isImage = (path: string) => /\.(png|jpe?g|gif|webp)$/i.test(path);

/** An image as it is now; nothing if the file is gone, or is no image after all. */
function SessionImage({ path, address }: { path: string; address: string }) {
  const [broken, setBroken] = useState(false);
  return broken ? null : <img src={address} alt={path} loading="lazy" onError={() => setBroken(true)} />;
}

const STEP = 50;

/** Number of rows to draw so far: more with each frame, so that no task of the page is long. */
function useGrowing(total: number): number {
  const [count, setCount] = useState(2 * STEP);
  useEffect(() => {
    if (count >= total) return;
    const timer = setTimeout(() => setCount(count + STEP), 16);
    return () => clearTimeout(timer);
  }, [count, total]);
  return count;
}

const isLive = (execution: Execution) => execution.status === "running" || execution.status === "waiting";

const TICK_MS = 1_000;

/** Seconds that a program has taken so far; undefined once it has ended. */
function useElapsed(execution: Execution): number | undefined {
  const [, setTick] = useState(0);
  const live = isLive(execution);
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(() => setTick((tick) => tick + 1), TICK_MS);
    return () => clearInterval(timer);
  }, [live]);
  return live ? Math.max(0, serverNow() / 1000 - execution.began) : undefined;
}

function checkText(execution: Execution): string {
  if (execution.check?.verdict === "rejected") return "rejected by the type check";
  if (execution.checked || execution.check?.verdict === "passed") return "type-checked";
  return isLive(execution) && !execution.check ? "starting" : "not type-checked";
}

interface RowProps extends Omit<CallsProps, "execution"> {
  call: Call;
}

const Row = memo(
  function Row({ call, total, now, onOpen }: RowProps) {
    const [open, setOpen] = useState(false);
    const end = call.duration === undefined ? (now ?? total) : call.started + call.duration;
    const wait = call.approval;
    const toggle = () => {
      if (!open) onOpen?.();
      setOpen(!open);
    };
    return (
      <li className={`call ${call.error ? "failed" : ""} ${open ? "" : "plain"}`}>
        <button type="button" className="row" aria-expanded={open} onClick={toggle}>
          <span className="what">
            <b>{call.tool}</b>
            ({brief(call.input, 160)})
          </span>
          <span className="bar" aria-hidden="true">
            <Span from={call.started} to={end} total={total} kind="work" />
            {wait && <Span from={wait.at} to={wait.until ?? end} total={total} kind="wait" />}
          </span>
          <span className="time">
            {call.duration !== undefined ? duration(call.duration) : now === undefined ? "…" : duration(Math.max(1, Math.floor(end - call.started)))}
          </span>
        </button>
        {!open && <Reply call={call} />}
        {wait && (
          <p className="decision">
            {wait.state === "waiting" ? "waits for your approval" : wait.state}
            {wait.by && ` by ${wait.by}`}
            {wait.reason && `: ${wait.reason}`}
          </p>
        )}
        {open && (
          <dl>
            <dt>Input</dt>
            <dd>
              <Value value={call.input} label={`Input of ${call.tool}`} />
            </dd>
            {call.error ? (
              <>
                <dt>Error</dt>
                <dd>
                  <Value value={call.error.message} label={`Error of ${call.tool}`} />
                </dd>
              </>
            ) : (
              call.output !== undefined && (
                <>
                  <dt>Output</dt>
                  <dd>
                    <Value value={call.output} label={`Output of ${call.tool}`} />
                  </dd>
                </>
              )
            )}
          </dl>
        )}
      </li>
    );
  },
  (before, after) =>
    before.total === after.total &&
    before.now === after.now &&
    before.onOpen === after.onOpen &&
    JSON.stringify(before.call) === JSON.stringify(after.call),
);

/** What came of a call, in a line or two; what it says of itself while it runs. */
function Reply({ call }: { call: Call }) {
  if (call.error) return <p className="reply">{call.error.message}</p>;
  if (call.output !== undefined) return <p className="reply">{brief(call.output, 300)}</p>;
  return call.progress && call.duration === undefined ? <Progress progress={call.progress} /> : null;
}

/** How far a call is: what its tool says, such as the end of a command's output so far, and the numbers it gave. */
function Progress({ progress: { message, done, total } }: { progress: NonNullable<Call["progress"]> }) {
  return (
    <p className="reply live">
      {message}
      {total ? ` ${done} of ${total}` : !message && done}
    </p>
  );
}

function Span({ from, to, total, kind }: { from: number; to: number; total: number; kind: string }) {
  const place = (node: HTMLElement | null) => {
    if (!node) return;
    node.style.left = `${Math.min(100, (100 * from) / total)}%`;
    node.style.width = `${Math.max(0.5, Math.min(100, (100 * (to - from)) / total))}%`;
  };
  return <span className={kind} ref={place} />;
}

const Console = memo(
  function Console({ logs }: { logs: Execution["logs"] }) {
    const rows = useGrowing(logs.length);
    return (
      <div className="console" role="log" aria-live="off" aria-label="Console" tabIndex={0}>
        {logs.slice(0, rows).map(([level, text], index) => (
          <div key={index} className={level}>
            {text}
          </div>
        ))}
      </div>
    );
  },
  (before, after) => before.logs.length === after.logs.length && before.logs[0]?.[2] === after.logs[0]?.[2],
);

function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Number.isInteger(seconds) ? seconds : seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** From the shortest to the longest, such as "3–120 ms". */
function durations(shortest: number, longest: number): string {
  const [from, to] = [duration(shortest), duration(longest)];
  if (from === to) return to;
  const [number, unit] = from.split(" ");
  return `${to.endsWith(` ${unit}`) ? number : from}–${to}`;
}

const ROWS = 50;
const COLUMNS = 10;
const CELL_CHARS = 200;

/** A value as a table if it is a list of objects, else as JSON or as the text that it is; with a button that copies all of it. */
function Value({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const records = recordsOf(value);
  return (
    <div className="listing">
      {records ? (
        <Records records={records} rest={records.length < (value as unknown[]).length ? String((value as unknown[]).at(-1)) : ""} label={label} />
      ) : (
        <pre className="value" tabIndex={0} role="group" aria-label={label}>
          {text}
        </pre>
      )}
      <div className="tools">
        <Copy text={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  );
}

type Member = Record<string, unknown>;

/** The objects of a list that has nothing else, but for the text by which the server ends a list that it shortened. */
function recordsOf(value: unknown): Member[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const records = typeof value.at(-1) === "string" ? value.slice(0, -1) : value;
  const isTable = records.every((each) => typeof each === "object" && each !== null && !Array.isArray(each));
  return isTable && records.some((each) => Object.keys(each).length > 0) ? records : undefined;
}

function Records({ records, rest, label }: { records: Member[]; rest: string; label: string }) {
  const rows = records.slice(0, ROWS);
  const names = [...new Set(rows.flatMap(Object.keys))];
  const columns = names.slice(0, COLUMNS).map((name) => {
    const isNumber = rows.every((each) => typeof (each[name] ?? 0) === "number");
    return { name, kind: isNumber ? "number" : undefined };
  });
  const left = [
    records.length > ROWS && `${ROWS} of ${records.length} rows`,
    names.length > COLUMNS && `${COLUMNS} of ${names.length} columns`,
    rest,
  ].filter(Boolean);
  return (
    <>
      <div className="table" role="group" aria-label={label} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {columns.map(({ name, kind }) => (
                <th key={name} scope="col" className={kind}>
                  {cut(name, CELL_CHARS)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, place) => (
              <tr key={place}>
                {columns.map(({ name, kind }) => (
                  <td key={name} className={kind}>
                    {typeof row[name] === "string" ? cut(row[name], CELL_CHARS) : brief(row[name] ?? undefined, CELL_CHARS)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left.length > 0 && <p className="note">{left.join(", ")}</p>}
    </>
  );
}

const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** JSON on one line, shortened; nothing for undefined. */
const brief = (value: unknown, most: number) => cut(JSON.stringify(value) ?? "", most);
