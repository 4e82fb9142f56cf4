import { useState } from "react";
import { type Execution, post, request, root } from "./api";
import { STATUS } from "./program";

interface Step {
  /** Number of the call whose reply comes next; 0 at the end. */
  n: number;
  tool: string;
  ms: number;
  /** Number of console entries so far. */
  logs: number;
  waiting: number[];
}

interface Recorded {
  steps: Step[];
  calls: [n: number, tool: string, input: string, output: string][];
  logs: string[];
  status: string;
}

interface Undone {
  n: number;
  tool: string;
  outcome: string;
  reason: string | null;
}

/** What a recorded program looked like before each reply, and what can be done from there. */
export function Timeline({ execution, onUndone }: { execution: Execution; onUndone: () => void }) {
  const [recorded, setRecorded] = useState<Recorded>();
  const [at, setAt] = useState(0);
  const [source, setSource] = useState(execution.source);
  const [undone, setUndone] = useState<Undone[]>();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const address = `api/executions/${encodeURIComponent(execution.id)}`;
  const attempt = (work: () => Promise<void>) => {
    setBusy(true);
    setProblem("");
    work()
      .catch((error: Error) => setProblem(error.message))
      .finally(() => setBusy(false));
  };
  const load = () =>
    attempt(async () => {
      const found = await request<Recorded>(`${address}/timeline`);
      setRecorded(found);
      setAt(found.steps.length - 1);
    });
  const run = (changed?: string) =>
    attempt(async () => {
      const { conversation } = await post<{ conversation: string }>(`${address}/fork`, { at: step!.n, source: changed ?? null });
      location.assign(`${root}#${conversation}`);
    });
  const undo = (until: number | null) => {
    if (!confirm(until === null ? "Undo all changes of this program?" : `Undo the changes from call ${until} on?`)) return;
    attempt(async () => {
      setUndone(await post<Undone[]>(`${address}/rollback`, { until }));
      onUndone();
    });
  };
  const step = recorded?.steps[at];
  const replied = new Set(recorded?.steps.slice(0, at).map((each) => each.n));
  return (
    <section className="program" aria-label="Time line">
      <header>
        <h2 className="fold">Time line</h2>
      </header>
      {!recorded && (
        <p className="buttons">
          <button type="button" disabled={busy} onClick={load}>
            Replay it
          </button>
        </p>
      )}
      {recorded && step && (
        <>
          <label>
            State at a call
            <input type="range" min={0} max={recorded.steps.length - 1} value={at} onChange={(event) => setAt(Number(event.target.value))} />
          </label>
          <p className="note" role="status">
            {step.n ? `Before the reply to call ${step.n}, ${step.tool}, after ${step.ms} ms` : `At the end: it ${STATUS[recorded.status] ?? recorded.status}`}
          </p>
          <h3>Calls until then</h3>
          <ol className="calls" aria-label="Calls until then" tabIndex={0}>
            {recorded.calls.map(([n, tool, input, output]) =>
              replied.has(n) || step.waiting.includes(n) ? (
                <li className="call plain" key={n} value={n}>
                  <p className="reply">
                    {n} <b>{tool}</b>({input}){replied.has(n) ? `: ${output}` : " waits"}
                  </p>
                </li>
              ) : null,
            )}
          </ol>
          <h3>Console until then</h3>
          <div className="console" role="group" aria-label="Console until then" tabIndex={0}>
            {recorded.logs.slice(0, step.logs).map((text, index) => (
              <div key={index}>{text}</div>
            ))}
          </div>
          <p className="buttons">
            {step.n > 0 && (
              <>
                <button type="button" disabled={busy} onClick={() => run()}>
                  Run again from call {step.n}
                </button>
                <button type="button" disabled={busy} onClick={() => undo(step.n)}>
                  Undo from call {step.n}
                </button>
              </>
            )}
            <button type="button" disabled={busy} onClick={() => undo(null)}>
              Undo all changes
            </button>
          </p>
          {step.n > 0 && (
            <details>
              <summary>Run another program from call {step.n}</summary>
              <textarea aria-label="Other program" rows={8} value={source} onChange={(event) => setSource(event.target.value)} />
              <p className="note">It has to make the same calls as this one up to there.</p>
              <button type="button" disabled={busy || !source.trim()} onClick={() => run(source)}>
                Run it
              </button>
            </details>
          )}
          {undone && (
            <ul aria-label="What was undone">
              {undone.length === 0 && <li>The program has changed nothing.</li>}
              {undone.map((each) => (
                <li key={each.n}>
                  {each.n} {each.tool}: {each.outcome.replace("_", " ")}
                  {each.reason && `, ${each.reason}`}
                </li>
              ))}
            </ul>
          )}
        </>
      )}
      {problem && (
        <p className="why" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}
