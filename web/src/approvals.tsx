import { useEffect, useRef, useState } from "react";
import { type Approval, type Call, type Execution, post } from "./api";

/** The calls that wait for a person, one at a time. It is outside of the cards, so that no scrolling hides its buttons. */
export function Approvals({ executions, onDecided }: { executions: Execution[]; onDecided?: () => void }) {
  const [skipped, setSkipped] = useState(0);
  const waiting = executions.flatMap(({ id, calls }) =>
    calls.flatMap((call) => (call.approval?.state === "waiting" ? [{ call, approval: call.approval, execution: id }] : [])),
  );
  const shown = waiting[skipped % waiting.length];
  if (!shown) return null;
  const next = () => setSkipped(skipped + 1);
  return <Ask key={`${shown.execution} ${shown.call.n} ${shown.approval.digest}`} {...shown} count={waiting.length} onNext={next} onDecided={onDecided} />;
}

const ARMED_MS = 500;

interface AskProps {
  call: Call;
  approval: Approval;
  execution: string;
  /** Number of calls that wait, and a function that shows the next of them. */
  count: number;
  onNext: () => void;
  onDecided?: () => void;
}

function Ask({ call, approval, execution, count, onNext, onDecided }: AskProps) {
  const [sent, setSent] = useState(false);
  const [problem, setProblem] = useState("");
  const [reason, setReason] = useState("");
  const [armed, setArmed] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (document.activeElement === document.body) box.current?.focus();
  }, []);
  // It stands where the one before stood: the second click of a double click is not for it.
  useEffect(() => {
    const timer = setTimeout(() => setArmed(true), ARMED_MS);
    return () => clearTimeout(timer);
  }, []);
  const decide = (approved: boolean, for_session = false) => {
    setSent(true);
    const { digest } = approval;
    const decision = approved ? { approved, for_session, digest } : { approved, reason, digest };
    post(`api/approvals/${encodeURIComponent(execution)}/${call.n}`, decision).then(
      onDecided,
      (error: Error) => {
        setProblem(error.message);
        setSent(false);
      },
    );
  };
  const doubts = approval.doubts ?? [];
  const goes = !approval.reason && doubts.some(({ destination }) => destination !== null);
  const readable = approval.shown !== null && approval.shown !== undefined;
  return (
    <div className="ask" role="group" aria-label={`Approval of ${call.tool}`} tabIndex={-1} ref={box}>
      <p>
        <b>{call.tool}</b> {approval.reason ? `needs your decision: ${approval.reason}.` : "needs your approval."} {approval.description}
        {!approval.readOnly && " It changes something."}
      </p>
      {doubts.length > 0 && (
        <ul className="doubts" aria-label={`Reasons to ask about ${call.tool}`}>
          {doubts.map(({ text }, index) => (
            <li key={index}>{text}</li>
          ))}
          {approval.seen && approval.seen.length > 0 && <li>In this conversation, the model has read {approval.seen.join(", ")}.</li>}
        </ul>
      )}
      {readable ? (
        <div className="given" tabIndex={0} role="group" aria-label={`Input of ${call.tool}`}>
          <Table input={approval.input} shown={approval.shown!} />
        </div>
      ) : (
        <p>Its input cannot be shown whole; deny it.</p>
      )}
      <div className="buttons">
        <button type="button" className="yes" disabled={sent || !armed || !readable} onClick={() => decide(true)}>
          {approval.reason ? "Run it again" : goes ? "Approve once" : "Approve"}
        </button>
        {goes && (
          <button type="button" disabled={sent || !armed || !readable} onClick={() => decide(true, true)}>
            Allow in this conversation
          </button>
        )}
        <button type="button" disabled={sent || !armed} onClick={() => decide(false)}>
          Deny
        </button>
        <input
          aria-label="Reason for a denial"
          placeholder="Reason, if you deny it"
          maxLength={500}
          value={reason}
          disabled={sent}
          onChange={(event) => setReason(event.target.value)}
        />
        {count > 1 && (
          <button type="button" className="quiet" onClick={onNext}>
            Next of {count} that wait
          </button>
        )}
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
