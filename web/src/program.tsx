import { memo, useEffect, useMemo, useRef, useState } from "react";
import { type Approval, type Call, type Execution, post, request, root } from "./api";
import { Code } from "./code";

const STATUS: Record<string, string> = {
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
};

/** The inside of one program. */
export const Program = memo(function Program({ execution, alone }: { execution: Execution; alone?: boolean }) {
  const [whole, setWhole] = useState<Execution>();
  const [problem, setProblem] = useState("");
  const rows = useGrowing(whole?.calls.length ?? 0);
  const shown = whole && !isLive(execution) ? whole : execution;
  const total = Math.max(
    0.05,
    shown.duration ?? 0,
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
  const load = () =>
    request<Execution>(`api/executions/${execution.id}`).then(setWhole, (error: Error) => setProblem(error.message));
  return (
    <section className="program" data-status={shown.status} aria-label={`Program ${STATUS[shown.status] ?? shown.status}`}>
      <header>
        <span className="dot" aria-hidden="true" />
        <b>Program</b>
        <span role="status">{STATUS[shown.status] ?? shown.status}</span>
        <span className="facts">
          {checkText(shown)}
          {shown.isolation && ` · ${shown.isolation.kind}`}
          {` · ${shown.callCount} ${shown.callCount === 1 ? "call" : "calls"}`}
          {shown.duration !== undefined && ` · ${duration(shown.duration)}`}
        </span>
        {!alone && <a href={`${root}executions/${encodeURIComponent(shown.id)}`}>open</a>}
      </header>
      <Code code={shown.source} language={shown.language} failed={failed} marks={marks} />
      {shown.error && !shown.error.line && (
        <div className="why" role="alert">
          <b>{shown.error.name}</b>: {shown.error.message}
        </div>
      )}
      {shown.calls.length > 0 && (
        <>
          <h3>Calls</h3>
          {shown.callCount > shown.calls.length && (
            <p className="note">The latest {shown.calls.length} of {shown.callCount} calls.</p>
          )}
          <ol className="calls">
            {shown.calls.slice(0, rows).map((call) => (
              <Row key={call.n} call={call} total={total} execution={shown.id} />
            ))}
          </ol>
        </>
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
          <Value value={shown.value} />
        </>
      )}
      {shown.images?.map((source, index) =>
        source.startsWith("data:image/") ? <img key={index} src={source} alt={`Image ${index + 1} of the result`} /> : null,
      )}
      {shown.files && <Files files={shown.files} execution={shown.id} />}
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
      {problem && <p className="why">{problem}</p>}
    </section>
  );
});

/** What the program left in its session: links to what is there, and the names of what is gone. */
function Files({ files, execution }: { files: NonNullable<Execution["files"]>; execution: string }) {
  const address = `${root}api/executions/${encodeURIComponent(execution)}/file?path=`;
  return (
    <>
      <h3>Files</h3>
      <ul className="files">
        {[...files.created, ...files.changed].map((path) => (
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
    </>
  );
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

function checkText(execution: Execution): string {
  if (execution.check?.verdict === "rejected") return "rejected by the type check";
  if (execution.checked || execution.check?.verdict === "passed") return "type-checked";
  return isLive(execution) && !execution.check ? "starting" : "not type-checked";
}

const Row = memo(
  function Row({ call, total, execution }: { call: Call; total: number; execution: string }) {
    const end = call.duration === undefined ? total : call.started + call.duration;
    const wait = call.approval;
    return (
      <li className={call.error ? "call failed" : "call"}>
        <span className="what">
          <b>{call.tool}</b>
          <code>({brief(call.input, 160)})</code>
        </span>
        <span className="bar" aria-hidden="true">
          <Span from={call.started} to={end} total={total} kind="work" />
          {wait && <Span from={wait.at} to={wait.until ?? end} total={total} kind="wait" />}
        </span>
        <span className="time">{call.duration === undefined ? "…" : duration(call.duration)}</span>
        <span className="reply">
          {call.error ? call.error.message : call.output !== undefined ? `→ ${brief(call.output, 300)}` : ""}
          {call.progress && call.duration === undefined && <Progress progress={call.progress} />}
          {wait && wait.state !== "waiting" && (
            <em>
              {` ${wait.state}`}
              {wait.by && ` by ${wait.by}`}
              {wait.reason && `: ${wait.reason}`}
            </em>
          )}
        </span>
        {wait?.state === "waiting" && <Ask call={call} approval={wait} execution={execution} />}
      </li>
    );
  },
  (before, after) =>
    before.execution === after.execution &&
    before.total === after.total &&
    JSON.stringify(before.call) === JSON.stringify(after.call),
);

/** How far a call is: what its tool says, such as the end of a command's output so far, and the numbers it gave. */
function Progress({ progress: { message, done, total } }: { progress: NonNullable<Call["progress"]> }) {
  return (
    <span className="live">
      {message}
      {total ? ` ${done} of ${total}` : !message && done}
    </span>
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

function Ask({ call, approval, execution }: { call: Call; approval: Approval; execution: string }) {
  const [sent, setSent] = useState(false);
  const [problem, setProblem] = useState("");
  const [reason, setReason] = useState("");
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (document.activeElement === document.body) box.current?.focus();
  }, []);
  const decide = (approved: boolean) => {
    setSent(true);
    post(`api/approvals/${encodeURIComponent(execution)}/${call.n}`, approved ? { approved } : { approved, reason }).catch(
      (error: Error) => setProblem(error.message),
    );
  };
  const readable = approval.shown !== null && approval.shown !== undefined;
  return (
    <div className="ask" role="group" aria-label={`Approval of ${call.tool}`} tabIndex={-1} ref={box}>
      <p>
        <b>{call.tool}</b> needs your approval. {approval.description}
        {!approval.readOnly && " It changes something."}
      </p>
      {readable ? <Table input={approval.input} shown={approval.shown!} /> : <p>Its input cannot be shown whole; deny it.</p>}
      <div className="buttons">
        <button type="button" className="yes" disabled={sent || !readable} onClick={() => decide(true)}>
          Approve
        </button>
        <button type="button" disabled={sent} onClick={() => decide(false)}>
          Deny
        </button>
        <input
          aria-label="Reason for a denial"
          placeholder="reason, if you deny it"
          maxLength={500}
          value={reason}
          disabled={sent}
          onChange={(event) => setReason(event.target.value)}
        />
      </div>
      {problem && (
        <p className="why" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

/** The text that the server wrote for a person, as a table if it is an object. */
function Table({ input, shown }: { input: unknown; shown: string }) {
  const members = parsed(shown);
  if (!members || !input) return <pre className="value">{shown}</pre>;
  return (
    <table>
      <tbody>
        {Object.entries(members).map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{typeof value === "string" ? value : JSON.stringify(value, null, 1)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** None if a member is repeated or has another form: then the text itself is shown. */
function parsed(shown: string): Record<string, unknown> | undefined {
  try {
    const found: unknown = JSON.parse(shown);
    return found && typeof found === "object" && !Array.isArray(found) ? (found as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const Console = memo(
  function Console({ logs }: { logs: Execution["logs"] }) {
    const rows = useGrowing(logs.length);
    return (
      <div className="console" role="log" aria-label="Console" tabIndex={0}>
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

function Value({ value }: { value: unknown }) {
  return (
    <pre className="value" tabIndex={0}>
      {typeof value === "string" ? value : JSON.stringify(value, null, 2)}
    </pre>
  );
}

export function duration(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

function brief(value: unknown, most: number): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
