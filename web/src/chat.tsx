import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { type FormEvent, type KeyboardEvent, memo, useEffect, useId, useMemo, useRef, useState } from "react";
import { type ConversationInfo, type Execution, post, root } from "./api";
import { Approvals } from "./approvals";
import { Copy } from "./copy";
import { Icon } from "./icon";
import { Markdown } from "./markdown";
import { Program, STATUS } from "./program";

type Message = UIMessage<unknown, { execution: Execution; error: string }>;

interface Props {
  id: string;
  earlier: Message[];
  running: boolean;
  suggestions: string[];
  /** Other conversations in which a call waits for the user. */
  waiting: ConversationInfo[];
  onChange: () => void;
  onReload: (id: string) => void;
}

const NEAR_THE_END = 120;
const WAITING_SHOWN = 5;

export function Chat({ id, earlier, running, suggestions, waiting, onChange, onReload }: Props) {
  const transport = useMemo(
    () =>
      new DefaultChatTransport<Message>({
        api: `${root}api/chat`,
        prepareSendMessagesRequest: ({ messages, trigger, messageId }) => ({
          body: { id, messages: messages.slice(-1), trigger, messageId },
        }),
        prepareReconnectToStreamRequest: () => ({ api: `${root}api/chat/${id}/stream` }),
        fetch: async (...request) => {
          const response = await fetch(...request);
          if (response.status === 204) onReload(id); // the reply ended before its stream was asked for
          return response;
        },
      }),
    [id, onReload],
  );
  const { messages, sendMessage, regenerate, status, stop, error, resumeStream } = useChat<Message>({
    id,
    messages: earlier,
    transport,
    experimental_throttle: 50,
    onFinish: onChange,
    onError: onChange,
  });
  const [editing, setEditing] = useState<string>();
  const busy = status === "submitted" || status === "streaming";
  const [halting, setHalting] = useState(false);
  const [away, setAway] = useState(false);
  const list = useRef<HTMLDivElement>(null);
  const foot = useRef<HTMLDivElement>(null);
  const follows = useRef(true);

  const resumed = useRef(false);
  useEffect(() => {
    if (!running || resumed.current) return;
    resumed.current = true;
    void resumeStream();
  }, [running, resumeStream]);
  useEffect(() => {
    let before = window.scrollY;
    const see = () => {
      // What grows under the page's own scrolling takes it away from the end; only a person scrolls up.
      const isNear = window.innerHeight + window.scrollY > document.body.scrollHeight - NEAR_THE_END;
      follows.current = isNear || (follows.current && window.scrollY >= before);
      before = window.scrollY;
      setAway(!follows.current);
    };
    const grown = new ResizeObserver(() => (follows.current ? toTheEnd() : see()));
    grown.observe(list.current!);
    grown.observe(foot.current!);
    window.addEventListener("scroll", see, { passive: true });
    return () => {
      grown.disconnect();
      window.removeEventListener("scroll", see);
    };
  }, []);

  const send = (text: string, messageId?: string) => {
    follows.current = true;
    setEditing(undefined);
    void sendMessage({ text, messageId });
    onChange();
  };
  // The server ends the stream once programs have ended, so that their cards say so. Who asks a second time does not
  // wait for it, and sees what the server has.
  const halt = () => {
    if (halting) void stop().then(() => onReload(id));
    else setHalting(true);
  };
  useEffect(() => {
    if (!busy) setHalting(false);
    else if (halting)
      post<{ stopped: boolean }>(`api/chat/${id}/stop`, {}).then(
        // Before the first byte the server may not know the reply yet: the next status asks again.
        ({ stopped }) => void (stopped || status === "submitted" || stop()),
        () => void stop(),
      );
  }, [busy, halting, id, status, stop]);
  const last = messages.at(-1);
  const executions = last?.parts.flatMap((part) => (part.type === "data-execution" ? [part.data] : [])) ?? [];
  // Those that are paused can be in any message; the last part of an execution has its state.
  const newest = new Map(messages.flatMap(({ parts }) => parts.flatMap((part) => (part.type === "data-execution" ? [[part.data.id, part.data]] : []))));
  const paused = [...newest.values()].filter((each) => each.status === "paused" && !executions.includes(each));
  const waits = executions.some((each) => each.status === "waiting");
  useEffect(() => {
    if (!waits) return;
    onChange();
    return onChange;
  }, [waits]);
  return (
    <>
      <p className="unseen" role="status">
        {announcement(last, busy)}
      </p>
      <div className="messages" role="region" aria-label="Conversation" aria-busy={busy} ref={list}>
        {messages.length === 0 && (
          <div className="welcome">
            <h2>What can I do for you?</h2>
            <p>I answer by programs. Each is shown while it runs: its code, its calls, and what they returned.</p>
            {suggestions.map((each) => (
              <button type="button" key={each} onClick={() => send(each)}>
                {each}
              </button>
            ))}
          </div>
        )}
        {messages.map((message) =>
          message.role === "user" ? (
            <article className="user" key={message.id} aria-label="You">
              {editing === message.id ? (
                <Composer
                  start={textOf(message)}
                  label="Edited message"
                  onSend={(text) => send(text, message.id)}
                  onCancel={() => setEditing(undefined)}
                />
              ) : (
                <>
                  <p>{textOf(message)}</p>
                  <div className="actions">
                    <Copy text={textOf(message)} label="Copy message" />
                    {!busy && (
                      <button type="button" className="quiet" title="Edit" aria-label="Edit" onClick={() => setEditing(message.id)}>
                        <Icon name="edit" />
                      </button>
                    )}
                  </div>
                </>
              )}
            </article>
          ) : (
            <article className="assistant" key={message.id} aria-label="Assistant">
              <Parts message={message} />
              {(!busy || message !== last) && (
                <div className="actions">
                  {textOf(message) && <Copy text={textOf(message)} label="Copy reply" />}
                  {message === last && (
                    <button
                      type="button"
                      className="quiet"
                      title="Retry"
                      aria-label="Retry"
                      onClick={() => void regenerate({ messageId: message.id })}
                    >
                      <Icon name="retry" />
                    </button>
                  )}
                </div>
              )}
            </article>
          ),
        )}
        {status === "submitted" && (
          <p className="thinking" aria-hidden="true">
            <span className="dot" />
            <span className="dot" />
            <span className="dot" />
          </p>
        )}
        {error && (
          <div className="why" role="alert">
            {isOfTheNetwork(error) ? "The connection to the server is lost." : readable(error.message)}
            {isOfTheNetwork(error) && (
              <button type="button" onClick={() => onReload(id)}>
                Reconnect
              </button>
            )}
          </div>
        )}
      </div>
      <div className="composer" ref={foot}>
        {waiting.length > 0 && (
          <p className="elsewhere">
            {waiting.length === 1 ? "Another conversation waits" : `${waiting.length} other conversations wait`} for your approval:
            {waiting.slice(0, WAITING_SHOWN).map((each) => (
              <a key={each.id} href={`#${each.id}`}>
                {each.title}
              </a>
            ))}
          </p>
        )}
        <Approvals executions={[...executions, ...paused]} onDecided={() => void (busy || onReload(id))} />
        {away && (
          <button type="button" className="latest" onClick={toTheEnd}>
            Latest <Icon name="down" />
          </button>
        )}
        <Composer start="" label="Message" onSend={send} busy={busy} halting={halting} onStop={halt} />
      </div>
    </>
  );
}

const textOf = (message: Message) => message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

const toTheEnd = () => window.scrollTo({ top: document.body.scrollHeight });

const SPOKEN_CHARS = 1_000;

/** What a screen reader says of a reply: where its last program is, and its words once it is complete. */
function announcement(message: Message | undefined, busy: boolean): string {
  if (message?.role !== "assistant") return busy ? "The reply begins." : "";
  const program = message.parts.findLast((part) => part.type === "data-execution")?.data;
  const waiting = program?.calls.find((call) => call.approval?.state === "waiting");
  if (busy && waiting) return `${waiting.tool} needs your approval.`;
  if (busy) return program ? `Program ${STATUS[program.status] ?? program.status}.` : "The reply begins.";
  const said = message.parts.findLast((part) => part.type === "text")?.text ?? "";
  return `The reply is complete. ${said.slice(0, SPOKEN_CHARS)}`;
}

/** True for what `fetch` throws of connections. Each browser has its own words for it. */
const isOfTheNetwork = (error: Error) => error instanceof TypeError || error.name === "NetworkError";

function readable(text: string): string {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text;
  }
}

/** The parts of a reply. A program's card stands where the model's call of it stands. */
function Parts({ message }: { message: Message }) {
  const executions = new Map<string, Execution>();
  const calls = new Set<string>();
  for (const part of message.parts) {
    if (part.type === "data-execution" && part.data.toolCallId) executions.set(part.data.toolCallId, part.data);
    if ("toolCallId" in part) calls.add(part.toolCallId);
  }
  return message.parts.map((part, index) => {
    if (part.type === "text") return <Markdown key={index} text={part.text} />;
    if (part.type === "reasoning")
      return (
        <details key={index}>
          <summary>Reasoning</summary>
          <Markdown text={part.text} />
        </details>
      );
    if (part.type === "data-error")
      return (
        <p key={index} className="why">
          {part.data}
        </p>
      );
    if (part.type === "data-execution")
      return part.data.toolCallId && calls.has(part.data.toolCallId) ? null : <Program key={index} execution={part.data} />;
    if (!("toolCallId" in part)) return null;
    const execution = executions.get(part.toolCallId);
    if (execution) return <Program key={part.toolCallId} execution={execution} />;
    const input = part.input as { code?: string } | undefined;
    if (part.state === "input-streaming" || part.state === "input-available") {
      return <Program key={part.toolCallId} execution={unwritten(part.toolCallId, input?.code ?? "")} alone />;
    }
    return <OtherTool key={part.toolCallId} part={part} />;
  });
}

const unwritten = (id: string, source: string): Execution => ({
  id,
  toolCallId: id,
  status: "writing",
  language: "typescript",
  source,
  began: 0,
  calls: [],
  callCount: 0,
  logs: [],
  logsDropped: 0,
});

const OtherTool = memo(function OtherTool({ part }: { part: Record<string, any> }) {
  const name = part.toolName ?? String(part.type).replace(/^tool-/, "");
  const answer = part.state === "output-error" ? part.errorText : part.output;
  return (
    <details className="tool">
      <summary>
        {name} {part.state === "output-error" ? "failed" : ""}
      </summary>
      <pre className="value" tabIndex={0} role="group" aria-label={`Input of ${name}`}>
        {JSON.stringify(part.input, null, 2)}
      </pre>
      <pre className="value" tabIndex={0} role="group" aria-label={`Output of ${name}`}>
        {typeof answer === "string" ? answer : JSON.stringify(answer, null, 2)}
      </pre>
    </details>
  );
});

interface ComposerProps {
  start: string;
  label: string;
  onSend: (text: string) => void;
  onCancel?: () => void;
  onStop?: () => void;
  busy?: boolean;
  halting?: boolean;
}

function Composer({ start, label, onSend, onCancel, onStop, busy, halting }: ComposerProps) {
  const hint = useId();
  const [text, setText] = useState(start);
  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || busy) return;
    onSend(text);
    setText("");
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape") {
      (onCancel ?? (busy ? onStop : undefined))?.();
    }
  };
  return (
    <form onSubmit={submit}>
      <textarea
        aria-label={label}
        placeholder="Write a message"
        rows={Math.min(8, text.split("\n").length)}
        maxLength={32_000}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={press}
        aria-describedby={hint}
        autoFocus
      />
      <span className="unseen" id={hint}>
        Enter sends, Shift and Enter begin a line, Escape {onCancel ? "cancels" : "stops a reply"}.
      </span>
      {busy ? (
        <button type="button" onClick={onStop}>
          {halting ? "Stopping…" : "Stop"}
        </button>
      ) : (
        <button type="submit" className="yes" disabled={!text.trim()}>
          Send
        </button>
      )}
      {onCancel && (
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      )}
    </form>
  );
}
